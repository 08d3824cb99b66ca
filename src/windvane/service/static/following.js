/** Follow the list of streams and the selected stream for as long as the page is visible. */

/** @import { StreamList } from "./types.js" */
/** @import { Repetition } from "./api.js" */

import { ProblemError, describeError, followStream, listStreams, repeat, token } from "./api.js";
import { refreshDecision } from "./decision.js";
import { state } from "./state.js";

const LIST_PERIOD = 5000; // milliseconds between requests of the list
const EMPTY_PERIOD = 1500; // while there is no stream
const SUMMARY_FIELDS = /** @type {const} */ (["title", "archived", "counts", "mean_reward", "alerts"]);

/** Set by the page: called after each list, and after each change of the state. */
export const listeners = { onList: (/** @type {StreamList} */ _list) => {}, onChange: () => {} };

/** @type {{ list: Repetition | null, live: Repetition | null }} */
const tasks = { list: null, live: null };

export function start() {
  startPolling();
  startFollowing();
}

export function stop() {
  tasks.list?.stop();
  tasks.live?.stop();
  tasks.list = tasks.live = null;
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
    await new Promise((resolve) => {
      setTimeout(resolve, period);
    });
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
