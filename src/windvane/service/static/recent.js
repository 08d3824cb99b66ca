/** The live table of recent decisions. */

/** @import { Charts, RecentDecision, StreamInfo } from "./types.js" */

import { addressOf } from "./address.js";
import { $, element, setText, syncChildren, timeElement } from "./dom.js";
import { describeTimeout } from "./findings.js";
import { countOf, formatNumber, formatSetting } from "./format.js";
import { joinTexts } from "./panel.js";

const SHORT = 10; // rows before the reader asks for more

const view = { filter: "all", isLong: false };
/** @type {{ info: StreamInfo, charts: Charts } | null} */
let shown = null;

/**
 * @param {StreamInfo} info
 * @param {Charts} charts
 */
export function showRecent(info, charts) {
  if (shown !== null && shown.info.name !== info.name) Object.assign(view, { filter: "all", isLong: false });
  shown = { info, charts };
  const section = $("#recent");
  const rows = charts.recent
    .filter(({ status }) => view.filter === "all" || status === view.filter)
    .sort((a, b) => (a.time < b.time ? 1 : -1));
  setText($(".reading", section), describePending(info, charts));
  for (const button of /** @type {NodeListOf<HTMLElement>} */ (section.querySelectorAll("[data-filter]"))) {
    button.setAttribute("aria-pressed", String(button.dataset.filter === view.filter));
  }
  $("table", section).hidden = rows.length === 0;
  $(".blank", section).hidden = rows.length > 0;
  syncChildren($("tbody", section), rows.slice(0, view.isLong ? rows.length : SHORT), {
    key: ({ id }) => id,
    create: (row) => makeRow(info.name, row),
    update: updateRow,
  });
  const more = $("#more");
  more.hidden = rows.length <= SHORT;
  more.setAttribute("aria-expanded", String(view.isLong));
  setText(more, view.isLong ? `Show the latest ${SHORT}` : `Show all ${rows.length}`);
}

/**
 * @param {StreamInfo} info
 * @param {Charts} charts
 */
function describePending({ counts, settings }, { recent }) {
  if (counts.pending === 0) return "No decision is pending.";
  const among = recent.filter(({ status }) => status === "pending").length;
  const { reward_timeout: timeout = null, default_reward: reward = null } = settings;
  return joinTexts(
    " ",
    `${countOf(counts.pending, "decision is", "decisions are")} pending, ${among} of these ${recent.length}.`,
    timeout !== null && `The reward timeout is ${describeTimeout(timeout)}.`,
    reward !== null && `The default reward is ${formatSetting(reward)}.`,
  );
}

/**
 * What never changes in a row.
 *
 * @param {string} stream
 * @param {RecentDecision} row
 */
function makeRow(stream, { id, time, arm, prediction }) {
  const link = element("a", { href: addressOf(stream, id) }, "Why?");
  link.setAttribute("aria-label", `Why? Explanation of decision ${id}`);
  return element(
    "tr",
    {},
    element("td", {}, timeElement(time, "age")),
    element("td", { className: "arm", title: String(arm) }, String(arm)),
    element("td", { className: "number" }, formatNumber(prediction)),
    element("td", { className: "number outcome" }),
    element("td", { className: "identity" }, element("code", {}, id)),
    element("td", { className: "why" }, link),
  );
}

/**
 * @param {HTMLTableRowElement} line
 * @param {RecentDecision} row
 */
function updateRow(line, { status, reward }) {
  line.dataset.status = status;
  setText($(".outcome", line), status === "rewarded" ? formatNumber(reward) : status);
}

/** Show the table again after the reader changed the view. */
function showAgain() {
  if (shown !== null) showRecent(shown.info, shown.charts);
}

$("#recent-filter").addEventListener("click", ({ target }) => {
  const { filter } = /** @type {HTMLElement} */ (target).dataset;
  if (filter === undefined) return;
  view.filter = filter;
  showAgain();
});
$("#more").addEventListener("click", () => {
  view.isLong = !view.isLong;
  showAgain();
});
