/* The live page: which stream is looked at, whether the server is there, and what is shown of either. */

import { Refused, follow, get, repeat, token } from "./connection.js";
import { $, command, element, moment, refreshTimes, say } from "./dom.js";
import * as examples from "./examples.js";
import * as streamView from "./stream.js";
import { count, number, plural } from "./words.js";

const LOOK = 5000; // milliseconds between looks at the list of streams
const LOOK_AT_NOTHING = 1500; // while there is none
const FILTER_FROM = 8; // streams

const state = {
  streams: null, // the list, once it is known
  broken: {}, // streams that are not served, and why
  selected: null, // a name
  document: null, // the selected stream
  missing: false, // there is no such stream
  heard: null, // seconds since 1970: the latest news
  trouble: { list: null, live: null }, // why there is no connection, if there is none
  denied: null, // the server wants a token: its code
  paused: false,
  axis: null, // time or decisions, as the reader wants it
};
let list = null, live = null; // what is being followed

/* --- the server --- */

function start() {
  stop();
  look();
  followSelected();
}

function look() {
  list?.stop();
  list = null;
  if (document.hidden || state.denied !== null) return;
  list = repeat(lookAtList, (error) => failed("list", error));
}

function stop() {
  list?.stop();
  live?.stop();
  list = live = null;
}

async function lookAtList(signal, worked) {
  for (;;) {
    const { streams, broken } = await get("v1/streams", signal);
    worked();
    heard("list");
    Object.assign(state, { streams, broken });
    choose();
    if (live === null) followSelected();
    render();
    await new Promise((go) => setTimeout(go, streams.length ? LOOK : LOOK_AT_NOTHING));
    if (signal.aborted) return;
  }
}

/* Once the list says that there is one of this name. */
function followSelected() {
  live?.stop();
  live = null;
  state.trouble.live = null;
  const wanted = state.selected !== null && state.streams !== null;
  state.missing = wanted && !state.streams.some(({ name }) => name === state.selected);
  if (!wanted || state.missing || document.hidden || state.denied !== null) return;
  const name = state.selected;
  live = follow(name, () => heard("live"), (document_) => {
    if (name !== state.selected) return;
    state.document = document_;
    const listed = state.streams?.findIndex((one) => one.name === name) ?? -1;
    if (listed >= 0) state.streams[listed] = document_;
    render();
  }, (error) => {
    if (error instanceof Refused && error.status === 404) {
      Object.assign(state, { missing: true, document: null });
      live = null;
      render();
      return false;
    }
    return failed("live", error);
  });
}

function heard(what) {
  if (state.trouble[what] !== null) [list, live].forEach((one) => one?.hurry()); // what works for one may for the other
  state.trouble[what] = null;
  if (what === "live" || live === null) state.heard = Date.now() / 1000;
  render();
}

function failed(what, error) {
  if (error instanceof Refused && error.status === 401) {
    state.denied = error.code;
    state.document = null;
    token.forget();
    stop();
    render();
    return false;
  }
  state.trouble[what] = error instanceof Refused ? error.message : "";
  render();
  return true;
}

const trouble = () => state.trouble.live ?? state.trouble.list;

/* --- which stream --- */

/* The address names the stream: "#/name", which no element has for its id; "#name" will do as well. */
const addressOf = (name) => `#/${encodeURIComponent(name)}`;

function fromAddress() {
  const given = location.hash.replace(/^#\/?/, "");
  try {
    return decodeURIComponent(given) || null;
  } catch {
    return given;
  }
}

function select(name) {
  if (name === state.selected) return;
  Object.assign(state, { selected: name, document: null, missing: false, paused: false });
  followSelected();
  if (state.missing) look(); // it may be newer than the list
  render();
}

/* Without one in the address, the first that runs. */
function choose() {
  if (fromAddress() !== null || !state.streams.length) return;
  const first = state.streams.find(({ archived }) => archived === null) ?? state.streams[0];
  history.replaceState(null, "", addressOf(first.name));
  select(first.name);
}

/* --- what is shown --- */

let due = false;

function render() {
  if (due) return;
  due = true;
  requestAnimationFrame(() => {
    due = false;
    renderConnection();
    renderPlace();
    if (state.paused) return;
    renderList();
    if (state.document !== null) streamView.show(state.document, axis());
  });
}

/* Over time, unless that would show nothing, or the reader has said. It stays as it is while one looks at a stream. */
let suited = { name: null, axis: "time" };

function axis() {
  if (state.axis !== null) return state.axis;
  if (suited.name !== state.document.name) {
    suited = { name: state.document.name, axis: streamView.inBursts(state.document) ? "decisions" : "time" };
    $(`#axis [value="${suited.axis}"]`).checked = true;
  }
  return suited.axis;
}

function renderConnection() {
  const kind = state.denied !== null ? "denied" : trouble() !== null ? "lost" : state.paused ? "paused"
    : state.heard === null ? "connecting" : "live";
  const why = trouble() ? ` (${trouble()})` : "";
  const text = {
    denied: "No access", lost: `Not connected, trying again${why}`, paused: "Paused", connecting: "Connecting", live: "Live",
  }[kind];
  $(".connection").dataset.kind = kind;
  say($("#connection"), text);
  const old = (kind === "lost" || kind === "paused") && state.heard !== null;
  $("#as-of").replaceChildren(...(old ? ["as of ", moment(kind === "lost" ? state.heard : state.pausedAt, "both")] : []));
  $("#pause").hidden = state.document === null;
  $("#pause").setAttribute("aria-pressed", String(state.paused));
  $("#forget").hidden = token.get() === null;
}

function renderPlace() {
  const known = state.streams !== null && state.denied === null;
  const place = state.denied !== null ? "access" : state.missing ? "missing" : state.document !== null ? "stream"
    : known && !state.streams.length ? "welcome" : null;
  const appears = place === "access" && $("#access").hidden;
  for (const id of ["access", "welcome", "missing", "stream"]) document.getElementById(id).hidden = id !== place;
  if (appears) $("#token").focus();
  $("nav").hidden = !known || !state.streams.length;
  if (place === "access") {
    say($("#access-message"), state.denied === "no_token" ? "This server asks for an access token."
      : "The server does not know this token. It may have been removed, or mistyped.");
  }
  if (place === "welcome") command($("#create-command"), examples.create());
  if (place === "missing") say($("#missing-message"), `The server has no stream called “${state.selected}”.`);
  const name = state.document?.title || state.selected;
  document.title = place === "stream" ? `${trouble() === null ? "" : "(not connected) "}${name} · windvane` : "windvane";
}

function renderList() {
  const broken = Object.entries(state.broken);
  $("#broken").hidden = broken.length === 0;
  $("#broken").replaceChildren(...broken.map(([name, why]) => element("p", {}, element("code", {}, name), ` is not served: ${why}`)));
  const streams = [...(state.streams ?? [])].sort((a, b) => (a.archived !== null) - (b.archived !== null));
  const wanted = $("#filter").value.trim().toLowerCase();
  const matching = streams.filter(({ name, title }) => `${name} ${title ?? ""}`.toLowerCase().includes(wanted));
  const places = new Map([...$("#streams").children].map((item) => [item.dataset.name, item]));
  const items = matching.map((stream) => listed(places.get(stream.name), stream));
  const old = [...$("#streams").children];
  if (items.length !== old.length || items.some((item, i) => item !== old[i])) {
    const focus = document.activeElement;
    $("#streams").replaceChildren(...items);
    if ($("#streams").contains(focus)) focus.focus({ preventScroll: true });
  }
  $(".filter").hidden = streams.length < FILTER_FROM;
  $("#nothing-found").hidden = matching.length > 0;
  const current = streams.find(({ name }) => name === state.selected);
  say($("#nav-count"), `${count(streams.length)}${current ? ` · ${current.title || current.name}` : ""}`);
}

/* An entry of the list: made once, so that it keeps the focus, and then brought up to date. */
function listed(item, { name, title, archived, decisions, mean_reward: mean }) {
  if (item === undefined) {
    const texts = ["name", "note"].map((className) => element("span", { className }));
    const link = element("a", { href: addressOf(name) }, ...texts);
    item = element("li", {}, link);
    item.dataset.name = name;
  }
  const [link] = item.children;
  const [label, note] = link.children;
  say(label, title || name);
  label.title = title ? `${title} (${name})` : name;
  say(note, archived !== null ? "archived" : decisions === 0 ? "no decisions"
    : `${plural(decisions, "decision")}${mean === null ? "" : `, mean ${number(mean)}`}`);
  if (name === state.selected) link.setAttribute("aria-current", "page");
  else link.removeAttribute("aria-current");
  return item;
}

/* --- what one can do --- */

const wide = window.matchMedia("(min-width: 1000px)");

/* Beside the stream the list is always there; above it, it is folded away. */
function foldNav() {
  $("#nav").open = wide.matches;
  $("#nav summary").tabIndex = wide.matches ? -1 : 0;
}

$("#pause").addEventListener("click", () => {
  state.paused = !state.paused;
  state.pausedAt = state.heard;
  render();
});
$("#forget").addEventListener("click", () => {
  token.forget();
  location.reload();
});
$("#access-form").addEventListener("submit", (event) => {
  event.preventDefault();
  token.set($("#token").value.trim());
  $("#token").value = "";
  Object.assign(state, { denied: null, heard: null, streams: null });
  start();
  render();
});
$("#axis").addEventListener("change", ({ target }) => {
  state.axis = target.value;
  if (state.document !== null) streamView.show(state.document, axis());
});
$("#filter").addEventListener("input", renderList);
$("#skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address holds the stream
  $("#content").focus();
});
window.addEventListener("hashchange", () => {
  select(fromAddress());
  if (!wide.matches) $("#nav").open = false;
});
document.addEventListener("visibilitychange", () => (document.hidden ? stop() : start()));
window.addEventListener("online", () => [list, live].forEach((one) => one?.hurry()));
wide.addEventListener("change", foldNav);
setInterval(refreshTimes, 1000);

foldNav();
state.selected = fromAddress();
start();
render();
