/** The live page: the selected stream, the state of the connection, and the view of both. */

/** @import { AxisKind, ClusterInfo, LiveEvent, StreamList } from "./types.js" */

import { addressOf, readAddress } from "./address.js";
import { token } from "./api.js";
import { isCluster, noteNodes, showCluster, showSummary } from "./cluster.js";
import { showDecision, startDialog } from "./decision.js";
import { $, refreshTexts, setText, setTimeText } from "./dom.js";
import { listeners, retryNow, start, startFollowing, startPolling, stop } from "./following.js";
import { closeDeletion, startManagement } from "./management.js";
import { showForm, startForm } from "./new-stream.js";
import { isBursty } from "./series.js";
import { state } from "./state.js";
import { showStream } from "./stream.js";
import { showList, startList } from "./stream-list.js";

/* --- the address --- */

function followAddress() {
  const { isNew, isNodes, stream, decision } = readAddress();
  const isOther = stream !== state.stream;
  Object.assign(state, { isNew, isNodes, stream, decision });
  if (isOther) {
    Object.assign(state, { live: null, isMissing: false, paused: null });
    startFollowing();
  }
  if (state.list !== null) selectDefault(state.list);
  render();
}

/**
 * Without a stream in the address, select the first that is not archived.
 *
 * @param {StreamList} list
 */
function selectDefault({ streams }) {
  if (state.stream !== null || state.isNew || state.isNodes || streams.length === 0) return;
  const first = streams.find(({ archived }) => archived === null) ?? streams[0];
  history.replaceState(null, "", addressOf(first.name));
  followAddress();
}

/**
 * A service on a file has no nodes to show.
 *
 * @param {ClusterInfo} cluster
 */
function followCluster(cluster) {
  noteNodes(cluster);
  if (!state.isNodes || cluster.node !== null) return;
  history.replaceState(null, "", location.pathname + location.search);
  followAddress();
}

/* --- rendering --- */

let isScheduled = false;

function render() {
  if (isScheduled) return;
  isScheduled = true;
  requestAnimationFrame(() => {
    isScheduled = false;
    renderConnection();
    showSummary(state.denied === null ? state.cluster : null);
    renderPlace();
    if (state.paused !== null) return;
    if (state.list !== null) showList(state.list, state.stream);
    renderStream();
  });
}

function renderStream() {
  if (state.live !== null) showStream(state.live.info, state.live.charts, chooseAxis(state.live));
}

let suggestion = { stream: "", axis: /** @type {AxisKind} */ ("time") };

/**
 * Charts are over time, unless that would show nothing or the reader chose otherwise. The axis does not change while a
 * stream is shown.
 *
 * @param {LiveEvent} live
 */
function chooseAxis({ info, charts }) {
  if (state.axis !== null) return state.axis;
  if (suggestion.stream !== info.name) {
    suggestion = { stream: info.name, axis: isBursty(charts.buckets) ? "decisions" : "time" };
    /** @type {HTMLInputElement} */ ($(`#axis [value="${suggestion.axis}"]`)).checked = true;
  }
  return suggestion.axis;
}

/** @returns {[kind: string, text: string]} */
function describeConnection() {
  const error = state.errors.live ?? state.errors.list;
  if (state.denied !== null) return ["denied", "No access"];
  if (error !== null) return ["lost", `Not connected, retrying${error === "" ? "" : ` (${error})`}`];
  if (state.paused !== null) return ["paused", "Paused"];
  return state.contact === null ? ["connecting", "Connecting"] : ["live", "Live"];
}

function renderConnection() {
  const [kind, text] = describeConnection();
  $(".connection").dataset.kind = kind;
  setText($("#connection"), text);
  const time = kind === "lost" ? state.contact : state.paused;
  setTimeText($("#as-of"), time === null ? "" : "as of ", time, "both");
  $("#pause").hidden = state.live === null;
  $("#pause").setAttribute("aria-pressed", String(state.paused !== null));
  $("#sign-out").hidden = token.get() === null;
}

/** @returns {string | null} the section to show */
function choosePlace() {
  if (state.denied !== null) return "access";
  if (state.isNodes) return isCluster(state.cluster) ? "cluster" : null;
  if (state.isNew || (state.list?.streams.length === 0 && state.stream === null)) return "new-stream";
  if (state.isMissing) return "missing";
  return state.live === null ? null : "stream";
}

function renderPlace() {
  const place = choosePlace();
  const isChange = place !== null && $(`#${place}`).hidden === true;
  for (const id of ["access", "cluster", "new-stream", "missing", "stream"]) $(`#${id}`).hidden = id !== place;
  const isEmpty = state.list === null || state.list.streams.length === 0;
  $("nav").hidden = state.denied !== null || isEmpty;
  if (place === "access") renderAccess(isChange);
  if (place === "new-stream") {
    setText($("#new-heading"), isEmpty ? "No stream yet" : "New stream");
    if (isChange) showForm();
  }
  if (place === "cluster" && state.cluster !== null) showCluster(state.cluster);
  if (place === "missing") setText($("#missing-message"), `The server has no stream named “${state.stream}”.`);
  showDecision(state.stream, place === "stream" ? state.decision : null);
  if (place !== "stream") closeDeletion();
  document.title = makeTitle(place);
}

/** @param {boolean} isChange */
function renderAccess(isChange) {
  const isFirst = state.denied === "no-token";
  const message = isFirst
    ? "This server requires an access token."
    : "The server does not know this token. Check it, or ask for a new one.";
  setText($("#access-message"), message);
  if (isChange) $("#token").focus();
}

/** @param {string | null} place */
function makeTitle(place) {
  if (place === "cluster") return "Nodes · windvane";
  if (place !== "stream") return "windvane";
  const isLost = (state.errors.live ?? state.errors.list) !== null;
  return `${isLost ? "(not connected) " : ""}${state.live?.info.title || state.stream} · windvane`;
}

/* --- what the reader can do --- */

const isWide = window.matchMedia("(min-width: 1000px)");
/** @type {HTMLDetailsElement} */
const nav = $("#nav");

/** Beside the stream the list is always open; above it, it is folded. */
function foldList() {
  nav.open = isWide.matches;
  $("summary", nav).tabIndex = isWide.matches ? -1 : 0;
}

$("#pause").addEventListener("click", () => {
  state.paused = state.paused === null ? state.contact : null;
  render();
});
$("#sign-out").addEventListener("click", () => {
  token.remove();
  location.reload();
});
$("#access form").addEventListener("submit", (event) => {
  event.preventDefault();
  /** @type {HTMLInputElement} */
  const input = $("#token");
  token.set(input.value.trim());
  input.value = "";
  Object.assign(state, { denied: null, contact: null, list: null });
  start();
  render();
});
$("#axis").addEventListener("change", ({ target }) => {
  state.axis = /** @type {AxisKind} */ (/** @type {HTMLInputElement} */ (target).value);
  renderStream();
});
$("#skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address holds the stream
  $("#content").focus();
});
window.addEventListener("hashchange", () => {
  followAddress();
  if (!isWide.matches) nav.open = false;
});
document.addEventListener("visibilitychange", () => (document.hidden ? stop() : start()));
window.addEventListener("online", retryNow);
isWide.addEventListener("change", foldList);
setInterval(refreshTexts, 1000);
startList(
  () => state.list,
  () => state.stream,
  () => {
    state.pages += 1;
    startPolling();
  },
);
startForm((name) => {
  location.hash = addressOf(name);
});
startManagement(() => {
  history.replaceState(null, "", location.pathname + location.search);
  state.list = null; // the stream must not be selected again
  followAddress();
  startPolling();
});
startDialog(() => {
  history.replaceState(null, "", addressOf(state.stream ?? ""));
  followAddress();
});

Object.assign(listeners, { onList: selectDefault, onCluster: followCluster, onChange: render });
foldList();
start();
render();
