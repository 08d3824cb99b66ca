/** The panel of predicted and realised reward, with a small chart for each arm. */

/** @import { Charts, Line, Series, StreamInfo } from "./types.js" */
/** @typedef {ReturnType<typeof armRewards>} ArmRewards */

import { showCalibration } from "./calibration.js";
import { $, element, fillTable, setDetails, setText, syncChildren } from "./dom.js";
import { countOf, formatCount, formatNumber } from "./format.js";
import { drawChart, formatTick, numeric, rangeOf, showPanel } from "./panel.js";
import { armRewards, windowAt } from "./series.js";

/**
 * The means, and a small chart for each named arm, all with the same axes.
 *
 * @param {StreamInfo} info
 * @param {Charts} charts
 * @param {Series} series
 * @param {Map<string, string>} colors by arm
 */
export function showPredictions(info, charts, series, colors) {
  const { kind, range, buckets, ends, width, last } = series;
  const arms = [...colors].map(([arm, color]) => ({
    arm,
    color,
    overTime: buckets.map((_, i) => armRewards(windowAt(buckets, i, width), arm)),
    recent: armRewards(last, arm),
  }));
  const values = arms.flatMap(({ overTime }) => overTime.flatMap(({ predicted, realised }) => [predicted, realised]));
  const section = showPanel("predictions", {
    reading: showCalibration(info),
    caption:
      "Dashed: predicted; solid: realised. Means over the decisions for the arm among " +
      (width * charts.width < info.counts.decisions
        ? `the last ${formatCount(width * charts.width)} decisions.`
        : "all decisions so far."),
  });
  const y = { range: rangeOf(values), format: formatTick };
  syncChildren($(".small-charts", section), arms, {
    key: ({ arm }) => arm,
    create: ({ arm }) => {
      const place = element("div", { className: "chart", role: "img" });
      const title = element("h3", { title: arm }, element("i"), arm);
      return element("div", {}, title, element("p", { className: "note" }), place);
    },
    update: (item, { arm, color, overTime, recent }) => {
      const means = `predicted ${formatNumber(recent.predicted)}, realised ${formatNumber(recent.realised)}`;
      const text = recent.decisions > 0 ? `Recent: ${means}` : "Not chosen recently";
      $("i", item).style.background = `var(--${color})`;
      setText($("p", item), text);
      const lines = makeLines(overTime, color);
      drawChart($(".chart", item), `Reward of ${arm} over ${kind}. ${text}.`, {
        kind,
        range,
        x: ends,
        y,
        lines,
      });
    },
  });
  showTable($("details:last-of-type", section), arms);
}

/**
 * @param {ArmRewards[]} overTime
 * @param {string} color
 * @returns {Line[]}
 */
function makeLines(overTime, color) {
  return [
    {
      label: "predicted",
      values: overTime.map(({ predicted }) => predicted),
      color: "ink",
      width: 1.5,
      dash: [5, 4],
      describe: (value, i) => `predicted ${formatNumber(value)} (${countOf(overTime[i].decisions, "decision")})`,
    },
    {
      label: "realised",
      values: overTime.map(({ realised }) => realised),
      color,
      width: 2.5,
      describe: (value, i) => `realised ${formatNumber(value)} (${countOf(overTime[i].settled, "reward")})`,
    },
  ];
}

/**
 * @param {HTMLDetailsElement} details
 * @param {{ arm: string, recent: ArmRewards }[]} arms
 */
function showTable(details, arms) {
  const columns = [{ head: "Arm" }, ...["Decisions", "Predicted", "Rewards", "Realised"].map(numeric)];
  const rows = arms.map(({ arm, recent: { decisions, predicted, settled, realised } }) => ({
    key: arm,
    cells: [arm, formatCount(decisions), formatNumber(predicted), formatCount(settled), formatNumber(realised)],
  }));
  setDetails(details, (table) => fillTable(table, "Recent mean predicted and realised reward by arm", columns, rows));
}
