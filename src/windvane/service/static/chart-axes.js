/** The axes of charts. */

/** @import { AxisKind, ChartSpec } from "./types.js" */

import { color } from "./colors.js";
import { formatCount } from "./format.js";

export const FONT = "12px system-ui, sans-serif";
const CHARACTER = 6.6; // pixels, of FONT, on average
export const RIGHT_PADDING = 10; // pixels
const TYPICAL_Y_AXIS = 50; // pixels
const DAY = 86400;
const SHORT_STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200]; // seconds
const DAY_STEPS = [1, 2, 4, 7, 14, 30, 60, 90, 180, 365];
const TIME_STEPS = [...SHORT_STEPS, ...DAY_STEPS.map((count) => count * DAY)];
const COUNT_STEPS = Array.from({ length: 10 }, (_, i) => 10 ** i).flatMap((ten) => [ten, 2 * ten, 5 * ten]);
const seconds = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
const minutes = new Intl.DateTimeFormat(undefined, { timeStyle: "short" });
const days = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });

/** @returns {uPlot.Axis} */
function makeAxis() {
  return {
    stroke: () => color("muted"),
    font: FONT,
    labelFont: FONT,
    grid: { stroke: () => color("grid"), width: 1 },
    ticks: { show: false },
  };
}

/**
 * @param {AxisKind} kind
 * @returns {uPlot.Axis}
 */
export function makeXAxis(kind) {
  const isTime = kind === "time";
  return {
    ...makeAxis(),
    size: isTime ? 40 : 28,
    gap: 6,
    space: 70,
    incrs: isTime ? TIME_STEPS : COUNT_STEPS,
    grid: { show: false },
    ticks: { show: true, stroke: () => color("line"), width: 1, size: 4 },
    border: { show: true, stroke: () => color("line"), width: 1 },
    values: (plot, splits, _axis, _space, step) =>
      dropClipped(plot, splits, isTime ? formatTimes(splits, step) : splits.map(formatCount)),
  };
}

/**
 * Leave out a label that would be cut off at the right edge.
 *
 * @param {uPlot} plot
 * @param {number[]} splits
 * @param {string[]} labels
 */
function dropClipped(plot, splits, labels) {
  const { min = 0, max = 1 } = plot.scales.x;
  return labels.map((label, i) => {
    const half = (CHARACTER * Math.max(...label.split("\n").map((line) => line.length))) / 2;
    const room = RIGHT_PADDING + (plot.width - TYPICAL_Y_AXIS) * ((max - splits[i]) / (max - min));
    return room < half ? "" : label;
  });
}

/**
 * Labels of a time axis, with the day where it begins.
 *
 * @param {number[]} splits
 * @param {number} step
 */
function formatTimes(splits, step) {
  let lastDay = "";
  return splits.map((time) => {
    const date = new Date(1000 * time);
    const day = days.format(date);
    const isNew = day !== lastDay;
    lastDay = day;
    if (step >= DAY) return isNew ? day : "";
    return `${(step < 60 ? seconds : minutes).format(date)}${isNew ? `\n${day}` : ""}`;
  });
}

/**
 * @param {() => ChartSpec} current
 * @returns {uPlot.Axis}
 */
export function makeYAxis(current) {
  const { ticks } = current().y;
  return {
    ...makeAxis(),
    gap: 6,
    space: 42,
    size: (_plot, values) => 14 + CHARACTER * Math.max(2, ...(values ?? []).map((text) => text.length)),
    values: (_plot, splits) => splits.map((value) => current().y.format(value)),
    ...(ticks === undefined
      ? {}
      : {
          splits: () => current().y.ticks ?? ticks,
          filter: (/** @type {uPlot} */ _plot, /** @type {number[]} */ splits) => splits,
        }),
  };
}
