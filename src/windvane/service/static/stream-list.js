/** The list of streams. */

/** @import { StreamList, StreamSummary } from "./types.js" */

import { addressOf } from "./address.js";
import { $, element, setText, syncChildren } from "./dom.js";
import { countOf, formatCount, formatNumber } from "./format.js";

const FILTER_FROM = 8; // streams

/** @type {HTMLInputElement} */
const filter = $("#filter");

/** @param {StreamList} list */
function matchingStreams({ streams }) {
  const wanted = filter.value.trim().toLowerCase();
  return [...streams]
    .sort((a, b) => Number(a.archived !== null) - Number(b.archived !== null))
    .filter(({ name, title }) => `${name} ${title ?? ""}`.toLowerCase().includes(wanted));
}

/**
 * @param {StreamList} list
 * @param {string | null} selected
 */
export function showList(list, selected) {
  const { streams, next, unavailable } = list;
  $("#unavailable").hidden = unavailable.length === 0;
  syncChildren($("#unavailable"), unavailable, {
    key: ({ name, reason }) => `${name} ${reason}`,
    create: ({ name, reason }) => element("li", {}, element("code", {}, name), ` is unavailable: ${reason}`),
  });
  const matching = matchingStreams(list);
  syncChildren($("#streams"), matching, {
    key: ({ name }) => name,
    create: makeItem,
    update: (item, stream) => updateItem(item, stream, stream.name === selected),
  });
  $(".filter").hidden = streams.length < FILTER_FROM && next === null;
  $("#more-streams").hidden = next === null;
  $("#no-match").hidden = matching.length > 0;
  setText(
    $("#no-match"),
    next === null ? "No stream matches." : `None of the first ${formatCount(streams.length)} matches.`,
  );
  const current = streams.find(({ name }) => name === selected);
  setText(
    $("#nav-count"),
    `${formatCount(streams.length)}${next === null ? "" : "+"}${current ? ` · ${current.title || current.name}` : ""}`,
  );
}

/** @param {StreamSummary} stream */
function makeItem({ name }) {
  const parts = ["name", "note"].map((className) => element("span", { className }));
  return element("li", {}, element("a", { href: addressOf(name) }, ...parts));
}

/**
 * @param {HTMLElement} item
 * @param {StreamSummary} stream
 * @param {boolean} isSelected
 */
function updateItem(item, { name, title, archived, counts, mean_reward: mean, alerts }, isSelected) {
  const link = $("a", item);
  const label = $(".name", item);
  setText(label, title || name);
  label.title = title ? `${title} (${name})` : name;
  const state =
    counts.decisions === 0
      ? "no decisions"
      : `${countOf(counts.decisions, "decision")}${mean === null ? "" : `, mean ${formatNumber(mean)}`}`;
  setText(
    $(".note", item),
    archived !== null ? "archived" : alerts.length > 0 ? `${state}, ${countOf(alerts.length, "alert")}` : state,
  );
  if (isSelected) link.setAttribute("aria-current", "page");
  else link.removeAttribute("aria-current");
}

/**
 * @param {() => StreamList | null} current
 * @param {() => string | null} selected
 * @param {() => void} onMore
 */
export function startList(current, selected, onMore) {
  filter.addEventListener("input", () => {
    const list = current();
    if (list !== null) showList(list, selected());
  });
  filter.addEventListener("keydown", ({ key }) => {
    const list = current();
    const name = filter.value.trim();
    if (key !== "Enter" || list === null || name === "") return;
    location.hash = addressOf(matchingStreams(list)[0]?.name ?? name); // a name that is not loaded yet is asked for
  });
  $("#more-streams").addEventListener("click", onMore);
}
