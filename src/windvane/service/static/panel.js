/** What the panels with charts have in common. */

/** @import { ChartSpec, Series } from "./types.js" */

import { chartOf } from "./chart.js";
import { $, fillTable, setDetails, setText } from "./dom.js";
import { formatClock, formatNumber, formatSetting, parseTime } from "./format.js";

/**
 * The text of a panel. The label describes a chart for those who do not see it; `blank` says why there is no chart.
 *
 * @param {string} id
 * @param {{ reading: string, caption: string, blank?: string | null }} texts
 */
export function showPanel(id, { reading, caption, blank = null }) {
  const section = $(`#${id}`);
  setText($(".reading", section), reading);
  setText($("figcaption", section), blank === null ? caption : "");
  setText($(".blank", section), blank ?? "");
  $(".blank", section).hidden = blank === null;
  const charts = /** @type {NodeListOf<HTMLElement>} */ (section.querySelectorAll(".chart, .bars"));
  charts.forEach((node) => node.toggleAttribute("hidden", blank !== null));
  return section;
}

/**
 * @param {HTMLElement} place
 * @param {string} label the chart in words
 * @param {ChartSpec} spec
 */
export function drawChart(place, label, spec) {
  place.setAttribute("aria-label", label);
  chartOf(place).draw(spec);
}

/**
 * A range of y that has room for all values.
 *
 * @param {(number | null)[]} values
 * @returns {[number, number]}
 */
export function rangeOf(values) {
  const known = values.filter((value) => value !== null);
  const [low, high] = [Math.min(...known), Math.max(...known)];
  if (low >= 0 && high <= 1) return [0, high > 0.5 ? 1.02 : Math.max(1.1 * high, 0.01)];
  const margin = high > low ? 0.06 * (high - low) : Math.max(0.1 * Math.abs(high), 0.1);
  return [low >= 0 ? 0 : low - margin, high + margin];
}

/** @type {(value: number) => string} */
export const formatTick = (value) => {
  const isSmall = value !== 0 && Math.abs(value) < 1e-3;
  return isSmall ? formatNumber(value) : formatSetting(Number(value.toPrecision(4)));
};

/**
 * Join the texts that apply.
 *
 * @param {string} separator
 * @param {...(string | false)} texts
 */
export const joinTexts = (separator, ...texts) => texts.filter((text) => text !== false && text !== "").join(separator);

/** @type {(head: string) => { head: string, isNumber: boolean }} */
export const numeric = (head) => ({ head, isNumber: true });

/**
 * A table of the buckets, the latest first, behind a details element.
 *
 * @param {HTMLDetailsElement} details
 * @param {string} caption
 * @param {Series} series
 * @param {[head: string, cell: (index: number) => string][]} columns the first has times, the others numbers
 */
export function setBucketTable(details, caption, { buckets }, columns) {
  setDetails(details, (table) => {
    const heads = columns.map(([head], i) => ({ head, isNumber: i > 0 }));
    const rows = buckets.map(({ since }, i) => ({ key: since, cells: columns.map(([, cell]) => cell(i)) }));
    fillTable(table, caption, heads, rows.reverse());
  });
}

/** @param {string} timestamp */
export const clockOf = (timestamp) => formatClock(parseTime(timestamp));
