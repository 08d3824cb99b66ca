/** The panel of memory and drift. */

/** @import { Series, StreamInfo } from "./types.js" */
/** @import { ModelSeries } from "./series.js" */

import { $, fillTable, setDetails } from "./dom.js";
import {
  describeDrift,
  describeEvidence,
  describeHalfLife,
  describeMemory,
  describeStart,
  FEWEST,
  formatMemory,
} from "./findings.js";
import { formatCount, formatDuration, formatNumber } from "./format.js";
import { clockOf, drawChart, formatTick, joinTexts, rangeOf, setBucketTable, showPanel } from "./panel.js";
import { modelSeries } from "./series.js";

const TICK_SECONDS = [1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 43200];
const TICK_DAYS = [1, 2, 4, 8, 15, 30, 60, 120, 240, 365];
const MEMORY_SECONDS = [...TICK_SECONDS, ...TICK_DAYS.map((days) => 86400 * days)];
const MOST_TICKS = 7;

/**
 * @param {number} low
 * @param {number} high
 * @param {boolean} isSeconds
 */
function memoryTicks(low, high, isSeconds) {
  const steps = high / low < 30 ? [1, 2, 5] : [1, 3];
  const powers = Array.from({ length: 10 }, (_, i) => 10 ** i).flatMap((ten) => steps.map((step) => step * ten));
  const ticks = (isSeconds ? MEMORY_SECONDS : powers).filter((tick) => tick >= low && tick <= high);
  return ticks.filter((_, i) => i % Math.ceil(ticks.length / MOST_TICKS) === 0);
}

/**
 * @param {StreamInfo} info
 * @param {Series} series
 */
export function showMemory(info, series) {
  const { drift, memory_unit: unit } = info;
  const model = modelSeries(info, series);
  const rates = model.models.map((at) => at?.rate ?? null);
  const hasRates = drift !== null && rates.some((rate) => rate !== null);
  const verdict = describeDrift(info);
  const start = describeStart(info);
  const section = showPanel("memory", {
    reading: joinTexts(" ", verdict.sentence, describeHalfLife(info).sentence),
    caption: joinTexts(
      " ",
      "How far back decisions look, on a logarithmic scale; dotted: all data so far.",
      drift !== null && "The bar at the end: the likely range.",
      hasRates && "Below: the estimated drift of θ per decision.",
      model.models.includes(null) && "Recorded since the server started.",
    ),
    blank: start === null ? null : `The chart starts with ${FEWEST} outcomes.`,
  });
  section.dataset.verdict = verdict.kind;
  if (start === null) drawMemory($(".memory", section), info, series, model);
  $(".rate", section).hidden = !hasRates || start !== null;
  if (hasRates && start === null) drawRates($(".rate", section), series, model.x, rates);
  showDriftTable(info);
  setBucketTable($("details:not(#drift)", section), "Memory, the latest first", series, [
    ["At", (i) => clockOf(series.buckets[i].since)],
    ["Decisions before", (i) => formatCount(series.before[i])],
    ["Memory", (i) => (model.models[i] === null ? "–" : formatMemory(model.models[i].memory, unit))],
    ["Drift per decision", (i) => formatNumber(rates[i])],
  ]);
}

/**
 * @param {HTMLElement} place
 * @param {StreamInfo} info
 * @param {Series} series
 * @param {ModelSeries} model
 */
function drawMemory(place, info, { kind, range }, { models, x, decisions, seconds }) {
  const { drift, memory, memory_unit: unit } = info;
  const isSeconds = unit === "seconds";
  const allData = (isSeconds ? seconds : decisions).map((value) => Math.max(value, 1));
  const memories = models.map((model, i) => (model === null ? null : (model.memory ?? allData[i])));
  const known = memories.filter((value) => value !== null);
  const low = Math.min(...known, drift?.memory_low ?? Infinity) / 2;
  const high = 2 * Math.max(...known, drift?.memory_high ?? 0);
  const ticks = memoryTicks(low, high, isSeconds);
  const describe = (/** @type {number} */ _value, /** @type {number} */ i) =>
    `uses ${describeMemory(models[i]?.memory ?? null, unit)}`;
  const interval =
    drift === null || drift.memory_low === null
      ? undefined
      : { low: drift.memory_low, high: drift.memory_high ?? high, color: "series-0" };
  drawChart(place, `Memory over ${kind}, now ${formatMemory(memory, unit)}.`, {
    kind,
    range,
    x,
    y: { range: [low, high], log: true, ticks, format: isSeconds ? formatDuration : formatCount },
    lines: [
      { label: "all data", values: allData.map((v) => Math.min(v, high)), color: "muted", width: 1.5, dash: [2, 3] },
      { label: "memory", values: memories, color: "series-0", style: "steps", width: 2.5, describe },
    ],
    interval,
  });
}

/**
 * @param {HTMLElement} place
 * @param {Series} series
 * @param {number[]} x
 * @param {(number | null)[]} rates
 */
function drawRates(place, { kind, range }, x, rates) {
  const describe = (/** @type {number} */ value) => `drift rate ${formatNumber(value)}`;
  const [, top] = rangeOf([...rates, 1e-6]);
  drawChart(place, `Drift rate over ${kind}, now ${formatNumber(rates[rates.length - 1])} per decision.`, {
    kind,
    range,
    x,
    y: { range: [0, top], format: formatTick },
    lines: [{ label: "drift rate", values: rates, color: "series-5", style: "steps", describe }],
  });
}

/** @param {StreamInfo} info */
function showDriftTable({ drift, memory_unit: unit }) {
  const details = $("#drift");
  details.hidden = drift === null;
  if (drift === null) return;
  const memory = (/** @type {number | null} */ value) => formatMemory(value, unit);
  /** @type {<T>(low: T, high: T, describe: (value: T) => string) => string} */
  const interval = (low, high, describe) => (low === high ? describe(low) : `${describe(low)} to ${describe(high)}`);
  const rows = [
    ["Verdict", drift.verdict],
    ["Evidence (20 to 1 counts as drift)", describeEvidence(drift.evidence)],
    ["Memory that predicts best", memory(drift.memory)],
    ["Likely range of the memory", interval(drift.memory_low, drift.memory_high, memory)],
    ["Drift per decision", formatNumber(drift.rate)],
    ["Likely range of the drift", interval(drift.rate_low, drift.rate_high, formatNumber)],
    ["Total variation so far", formatNumber(drift.variation)],
  ];
  setDetails(/** @type {HTMLDetailsElement} */ (details), (table) =>
    fillTable(
      table,
      "What the rewards say about drift; rough estimates",
      [{ head: "Quantity" }, { head: "Estimate" }],
      rows.map((cells) => ({ key: cells[0], cells })),
    ),
  );
}
