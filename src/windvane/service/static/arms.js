/** The panel of the share of arms. */

/** @import { Charts, Line, Series, StreamInfo } from "./types.js" */

import { $, element, setDetails, setText, fillTable, syncChildren } from "./dom.js";
import { countOf, formatCount, formatPercent, shorten } from "./format.js";
import { clockOf, drawChart, numeric, setBucketTable, showPanel } from "./panel.js";
import { armShares, rankArms, sumOf, windowAt } from "./series.js";

const OTHERS = "all others";
const NAME_LENGTH = 40; // characters in a tooltip or a table's head

/**
 * @param {StreamInfo} info
 * @param {Charts} charts
 * @param {Series} series
 * @param {Map<string, string>} colors by arm
 */
export function showArms({ counts }, charts, series, colors) {
  const { kind, range, buckets, starts, ends, width, last } = series;
  const named = [...colors.keys()];
  const total = Object.keys(charts.arms).length;
  const hasOthers = total > named.length || charts.others > 0;
  const rows = [...named, ...(hasOthers ? [null] : [])].map((arm) => ({
    arm,
    name: arm ?? OTHERS,
    color: arm === null ? "series-other" : String(colors.get(arm)),
  }));
  const recent = armShares(last, named);
  const overTime = buckets.map((_, i) => armShares(windowAt(buckets, i, width), named));
  const isPoint = starts[0] === ends[ends.length - 1];
  const [topArm, topCount] = rankArms(last)[0] ?? [OTHERS, 0];
  const decisions = sumOf(last, (bucket) => bucket.decisions);
  const section = showPanel("arms", {
    reading: `Recently most often ${shorten(topArm, 60)} (${formatPercent(topCount / decisions)}); ${
      charts.others > 0 ? `more than ${formatCount(total)} arms` : countOf(total, "arm")
    } chosen so far.`,
    caption: `The share of each arm in the last ${countOf(decisions, "decision")}.`,
    blank: isPoint ? "The chart starts with the second decision." : null,
  });
  if (!isPoint) {
    const label = `Share of arms over ${kind}. Recent: ${rows
      .map(({ arm, name }) => `${name} ${formatPercent(recent.get(arm) ?? 0)}`)
      .join(", ")}.`;
    drawChart($(".chart", section), label, {
      kind,
      range,
      x: [starts[0], ...ends],
      lines: stackShares(rows, [overTime[0], ...overTime]),
      y: { range: [0, 1], ticks: [0, 0.25, 0.5, 0.75, 1], format: (value) => `${100 * value} %` },
    });
  }
  showLegend(rows, recent, allTimeShares(charts, named, counts.decisions));
  const shares = buckets.map((bucket) => armShares([bucket], named));
  setBucketTable($("details", section), "Share of the decisions of each interval, the latest first", series, [
    ["Until", (i) => clockOf(buckets[i].until)],
    ["Decisions", (i) => formatCount(buckets[i].decisions)],
    ...rows.map(({ arm, name }) => column(shorten(name, NAME_LENGTH), (i) => formatPercent(shares[i].get(arm) ?? 0))),
  ]);
  showAllArms(charts, counts.decisions, hasOthers);
}

/** @type {(head: string, cell: (index: number) => string) => [string, (index: number) => string]} */
const column = (head, cell) => [head, cell];

/**
 * Areas that are drawn over each other: each line is the sum of an arm and all after it, the largest first.
 *
 * @param {{ arm: string | null, name: string, color: string }[]} rows
 * @param {Map<string | null, number>[]} overTime
 * @returns {Line[]}
 */
function stackShares(rows, overTime) {
  return rows.map(({ arm, name, color }, first) => ({
    label: name,
    color,
    style: "area",
    values: overTime.map((shares) => sumOf(rows.slice(first), (row) => shares.get(row.arm) ?? 0)),
    describe: (_, i) => `${shorten(name, NAME_LENGTH)}: ${formatPercent(overTime[i].get(arm) ?? 0)}`,
  }));
}

/**
 * @param {Charts} charts
 * @param {string[]} named
 * @param {number} decisions
 * @returns {Map<string | null, number>}
 */
function allTimeShares(charts, named, decisions) {
  const counts = new Map(Object.entries(charts.arms));
  /** @type {Map<string | null, number>} */
  const shares = new Map(named.map((arm) => [arm, (counts.get(arm) ?? 0) / decisions]));
  return shares.set(null, Math.max(0, 1 - sumOf([...shares.values()], (share) => share)));
}

/**
 * @param {{ arm: string | null, name: string, color: string }[]} rows
 * @param {Map<string | null, number>} recent
 * @param {Map<string | null, number>} allTime
 */
function showLegend(rows, recent, allTime) {
  syncChildren($("#arms-legend tbody"), rows, {
    key: ({ arm }) => (arm === null ? "others" : `arm ${arm}`),
    create: ({ name }) =>
      element(
        "tr",
        {},
        element("th", { scope: "row", title: name }, element("i"), name),
        element("td", { className: "number" }),
        element("td", { className: "number" }),
      ),
    update: (row, { arm, color }) => {
      $("i", row).style.background = `var(--${color})`;
      [recent, allTime].forEach((shares, i) =>
        setText(/** @type {HTMLElement} */ (row.children[i + 1]), formatPercent(shares.get(arm) ?? 0)),
      );
    },
  });
}

/**
 * @param {Charts} charts
 * @param {number} decisions
 * @param {boolean} hasOthers
 */
function showAllArms(charts, decisions, hasOthers) {
  const details = /** @type {HTMLDetailsElement} */ ($("#all-arms"));
  details.hidden = !hasOthers;
  const ranked = Object.entries(charts.arms).sort(([, a], [, b]) => b - a);
  setDetails(details, (table) =>
    fillTable(
      table,
      charts.others > 0
        ? `The ${formatCount(ranked.length)} most recently chosen arms; others: ${formatCount(charts.others)}`
        : "All arms",
      [{ head: "Arm" }, numeric("Decisions"), numeric("Share")],
      ranked.map(([arm, count]) => ({ key: arm, cells: [arm, formatCount(count), formatPercent(count / decisions)] })),
    ),
  );
}
