/** The panel of the reward rate. */

/** @import { Charts, Line, Series, StreamInfo } from "./types.js" */

import { $ } from "./dom.js";
import { FEWEST } from "./findings.js";
import { countOf, formatCount, formatNumber, formatSetting } from "./format.js";
import { clockOf, drawChart, formatTick, joinTexts, rangeOf, setBucketTable, showPanel } from "./panel.js";

/**
 * @param {StreamInfo} info
 * @param {Charts} charts
 * @param {Series} series
 */
export function showReward(info, charts, series) {
  const { buckets, ends, means, averages, width, kind, range } = series;
  const { mean_reward: mean, settings } = info;
  const { default_reward: reward = null } = settings;
  const known = averages.filter((value) => value !== null);
  const reading = describeRate(info, series);
  const section = showPanel("reward", {
    reading,
    caption: joinTexts(
      " ",
      `Each dot is the mean reward of up to ${countOf(charts.width, "decision")}; the line is the mean of the last`,
      `${width} dots; dashed: all time.`,
      reward !== null && `A decision that expires has the default reward ${formatSetting(reward)}.`,
    ),
    blank: known.length > 0 ? null : "The chart starts with the first reward.",
  });
  if (known.length > 0) {
    const extremes = [Math.min(...known), Math.max(...known)].map(formatNumber);
    drawChart($(".chart", section), `Reward rate over ${kind}, between ${extremes.join(" and ")}. ${reading}`, {
      kind,
      range,
      x: ends,
      y: { range: rangeOf([...means, mean]), format: formatTick },
      lines: makeLines(series, mean),
    });
  }
  setBucketTable($("details", section), "Reward rate, the latest first", series, [
    ["Until", (i) => clockOf(buckets[i].until)],
    ["Decisions", (i) => formatCount(buckets[i].decisions)],
    ["Rewards", (i) => formatCount(buckets[i].settled)],
    ["Mean reward", (i) => formatNumber(means[i])],
    ["Average", (i) => formatNumber(averages[i])],
  ]);
}

/**
 * @param {StreamInfo} info
 * @param {Series} series
 */
function describeRate({ mean_reward: mean, counts }, { recentMean, recentSettled }) {
  if (mean === null) return "No reward has been learned yet.";
  if (counts.settled < FEWEST) {
    return `Mean reward ${formatNumber(mean)} of ${countOf(counts.settled, "outcome")}: too few outcomes yet.`;
  }
  if (recentMean === null) return `The latest decisions wait for their rewards; all time ${formatNumber(mean)}.`;
  const recent = `Recent ${formatNumber(recentMean)} (${countOf(recentSettled, "reward")})`;
  return `${recent}, all time ${formatNumber(mean)} (${formatCount(counts.settled)}).`;
}

/**
 * @param {Series} series
 * @param {number | null} mean
 * @returns {Line[]}
 */
function makeLines({ buckets, ends, means, averages }, mean) {
  const describeDot = (/** @type {number} */ value, /** @type {number} */ i) =>
    `${formatNumber(value)} (${countOf(buckets[i].settled, "reward")})`;
  const describeAverage = (/** @type {number} */ value) => `average ${formatNumber(value)}`;
  return [
    { label: "mean", values: means, color: "dots", style: "dots", describe: describeDot },
    { label: "all time", values: ends.map(() => mean), color: "muted", width: 1.5, dash: [6, 4] },
    { label: "recent", values: averages, color: "series-0", width: 2.5, describe: describeAverage },
  ];
}
