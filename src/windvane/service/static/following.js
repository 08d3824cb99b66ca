/** Follow the list of streams and the selected stream for as long as the page is visible. */

/** @import { ClusterInfo, StreamList } from "./types.js" */
/** @import { Repetition } from "./api.js" */

import { ProblemError, describeError, followStream, get, listStreams, repeat, token } from "./api.js";
import { refreshDecision } from "./decision.js";
import { state } from "./state.js";

const LIST_PERIOD = 5000; // milliseconds between requests of the list
const EMPTY_PERIOD = 1500; // while there is no stream
const CLUSTER_PERIOD = 2000;
const SUMMARY_FIELDS = /** @type {const} */ (["title", "archived", "counts", "mean_reward", "alerts"]);

/** Set by the page: called after each list, after each answer about the cluster, and after each change of the state. */
export const listeners = {
  onList: (/** @type {StreamList} */ _list) => {},
  onCluster: (/** @type {ClusterInfo} */ _cluster) => {},
  onChange: () => {},
};

/** @type {{ list: Repetition | null, live: Repetition | null, cluster: Repetition | null }} */
const tasks = { list: null, live: null, cluster: null };

export function start() {
  startPolling();
  startFollowing();
  tasks.cluster?.stop();
  tasks.cluster = isIdle() ? null : repeat(pollCluster, () => state.denied === null);
}

export function stop() {
  for (const task of Object.values(tasks)) task?.stop();
  tasks.list = tasks.live = tasks.cluster = null;
}

const isIdle = () => document.hidden || state.denied !== null;

export function startPolling() {
  tasks.list?.stop();
  tasks.list = isIdle() ? null : repeat(pollList, (error) => handleError("list", error));
}

/**
 * @param {AbortSignal} signal
 * @param {() => void} onSuccess
 */
async function pollList(signal, onSuccess) {
  for (;;) {
    const list = await listStreams(state.pages, signal);
    onSuccess();
    state.list = list;
    noteContact("list");
    listeners.onList(list);
    const period = list.streams.length > 0 ? LIST_PERIOD : EMPTY_PERIOD;
    await pause(period);
    if (signal.aborted) return;
  }
}

/** @param {number} milliseconds */
const pause = (milliseconds) =>
  new Promise((resolve) => {
    setTimeout(resolve, milliseconds);
  });

/**
 * A node that stops or has lost its database still says who is there. What is wrong otherwise, the list says.
 *
 * @param {AbortSignal} signal
 * @param {() => void} onSuccess
 */
async function pollCluster(signal, onSuccess) {
  for (;;) {
    /** @type {ClusterInfo} */
    const cluster = await get("v1/cluster?streams=true", signal);
    onSuccess();
    state.cluster = cluster;
    listeners.onCluster(cluster);
    listeners.onChange();
    if (cluster.node === null) tasks.cluster?.stop(); // a service on a file has no nodes later either
    if (!signal.aborted) await pause(CLUSTER_PERIOD);
    if (signal.aborted) return;
  }
}

export function startFollowing() {
  tasks.live?.stop();
  tasks.live = null;
  state.errors.live = null;
  const name = state.stream;
  if (name === null || isIdle()) return;
  tasks.live = followStream(
    name,
    () => noteContact("live"),
    (event) => {
      if (name !== state.stream) return;
      state.live = event;
      state.isMissing = false;
      const summary = state.list?.streams.find((stream) => stream.name === name);
      if (summary !== undefined) Object.assign(summary, pick(event.info, SUMMARY_FIELDS));
      refreshDecision(name, event.charts.recent);
      listeners.onChange();
    },
    (error) => {
      if (!(error instanceof ProblemError && error.status === 404)) return handleError("live", error);
      Object.assign(state, { isMissing: true, live: null });
      listeners.onChange();
      return true; // it may be created later
    },
  );
}

/**
 * @template T
 * @template {keyof T} K
 * @param {T} source
 * @param {readonly K[]} names
 */
const pick = (source, names) => Object.fromEntries(names.map((name) => [name, source[name]]));

/** @param {"list" | "live"} source */
function noteContact(source) {
  if (state.errors[source] !== null) retryNow();
  state.errors[source] = null;
  if (source === "live" || state.stream === null || state.isMissing) state.contact = new Date().toISOString();
  listeners.onChange();
}

/**
 * @param {"list" | "live"} source
 * @param {unknown} error
 * @returns {boolean} whether to try again
 */
function handleError(source, error) {
  const isRefused = error instanceof ProblemError;
  if (isRefused && error.status === 401) {
    Object.assign(state, { denied: error.code, live: null });
    token.remove();
    stop();
  } else {
    state.errors[source] = isRefused ? describeError(error) : "";
  }
  listeners.onChange();
  return state.denied === null;
}

export const retryNow = () => Object.values(tasks).forEach((task) => task?.retryNow());
