/** From the buckets of the server to the series that charts draw. Nothing here touches the page. */

/** @import { ArmBucket, AxisKind, Bucket, Charts, Model, Series, StreamInfo } from "./types.js" */

import { parseTime } from "./format.js";

/** Arms with a colour of their own; the others are drawn together. */
export const NAMED_ARMS = 7;
const LEAST_WIDTH = 5; // buckets in a moving average
const WIDTHS = 12; // moving averages that fit side by side

/**
 * @param {Charts} charts
 * @param {AxisKind} kind
 * @returns {Series}
 */
export function makeSeries({ buckets }, kind) {
  const width = Math.max(LEAST_WIDTH, Math.ceil(buckets.length / WIDTHS));
  const before = runningTotals(buckets.map(({ decisions }) => decisions));
  const isTime = kind === "time";
  const last = buckets.slice(-width);
  return {
    kind,
    buckets,
    before,
    width,
    last,
    starts: buckets.map(({ since }, i) => (isTime ? parseTime(since) : before[i])),
    ends: buckets.map(({ until, decisions }, i) => (isTime ? parseTime(until) : before[i] + decisions)),
    range: makeRange(buckets, before, isTime),
    means: buckets.map((bucket) => meanReward([bucket])),
    averages: buckets.map((_, i) => meanReward(windowAt(buckets, i, width))),
    recentMean: meanReward(last),
    recentSettled: sumOf(last, ({ settled }) => settled),
  };
}

/**
 * Whether most of the time nothing happened: then a chart over time is empty except at its ends.
 *
 * @param {Pick<Bucket, "since" | "until">[]} buckets
 */
export function isBursty(buckets) {
  const ends = buckets.map(({ until }) => parseTime(until));
  const longest = Math.max(...ends.slice(1).map((end, i) => end - ends[i]));
  return buckets.length >= 10 && longest > 0.5 * (ends[ends.length - 1] - parseTime(buckets[0].since));
}

/** @param {number[]} values */
function runningTotals(values) {
  let total = 0;
  return values.map((value) => (total += value) - value);
}

/**
 * The ends of the horizontal axis, the same in all charts.
 *
 * @param {Bucket[]} buckets
 * @param {number[]} before
 * @param {boolean} isTime
 * @returns {[number, number]}
 */
function makeRange(buckets, before, isTime) {
  if (buckets.length === 0) return [0, 1];
  const last = buckets.length - 1;
  const [low, high] = isTime
    ? [parseTime(buckets[0].since), parseTime(buckets[last].until)]
    : [0, before[last] + buckets[last].decisions];
  const margin = high > low ? 0.015 * (high - low) : 0.5;
  return [isTime ? low - margin : low, high + margin];
}

/**
 * The buckets of the moving average that ends at bucket i.
 *
 * @param {Bucket[]} buckets
 * @param {number} i
 * @param {number} width
 */
export const windowAt = (buckets, i, width) => buckets.slice(Math.max(0, i - width + 1), i + 1);

/**
 * @template T
 * @param {T[]} items
 * @param {(item: T) => number} value
 */
export const sumOf = (items, value) => items.reduce((total, item) => total + value(item), 0);

/**
 * @param {number} total
 * @param {number} count
 */
const ratio = (total, count) => (count > 0 ? total / count : null);

/** @param {Bucket[]} buckets */
const meanReward = (buckets) =>
  ratio(
    sumOf(buckets, ({ total }) => total),
    sumOf(buckets, ({ settled }) => settled),
  );

/* --- arms --- */

/**
 * An arm in a bucket. Own properties only: an arm may be called "constructor".
 *
 * @param {Bucket} bucket
 * @param {string} arm
 * @returns {ArmBucket | undefined}
 */
const armIn = (bucket, arm) => (Object.hasOwn(bucket.arms, arm) ? bucket.arms[arm] : undefined);

/**
 * Arms by how often they were chosen in these buckets, the most often first.
 *
 * @param {Bucket[]} buckets
 */
export function rankArms(buckets) {
  /** @type {Map<string, number>} */
  const counts = new Map();
  for (const bucket of buckets) {
    for (const [arm, { decisions }] of Object.entries(bucket.arms)) counts.set(arm, (counts.get(arm) ?? 0) + decisions);
  }
  return [...counts].sort(([, a], [, b]) => b - a);
}

/** @type {Map<string, Map<string, number>>} By stream: the colour of each arm, kept for as long as the arm is named. */
const colorsByStream = new Map();

/**
 * The arms that have a colour of their own: half of them those chosen most now, the others those chosen most ever.
 *
 * @param {string} stream
 * @param {Charts} charts
 * @param {Bucket[]} last
 * @returns {Map<string, string>} by arm: the name of a custom property of the style sheet
 */
export function colorArms(stream, charts, last) {
  const everChosen = Object.entries(charts.arms)
    .sort(([, a], [, b]) => b - a)
    .map(([arm]) => arm);
  const chosenNow = rankArms(last)
    .slice(0, Math.ceil(NAMED_ARMS / 2))
    .map(([arm]) => arm);
  const named = [...new Set([...chosenNow, ...everChosen])].slice(0, NAMED_ARMS);
  const previous = colorsByStream.get(stream) ?? new Map();
  const colors = new Map(named.filter((arm) => previous.has(arm)).map((arm) => [arm, previous.get(arm)]));
  const free = Array.from({ length: NAMED_ARMS }, (_, i) => i).filter((i) => ![...colors.values()].includes(i));
  for (const arm of named) if (!colors.has(arm)) colors.set(arm, free.shift());
  colorsByStream.set(stream, colors);
  return new Map([...colors].sort(([, a], [, b]) => a - b).map(([arm, number]) => [arm, `series-${number}`]));
}

/**
 * The share of each named arm in these buckets, and that of all others under null.
 *
 * @param {Bucket[]} buckets
 * @param {string[]} named
 * @returns {Map<string | null, number>}
 */
export function armShares(buckets, named) {
  const decisions = sumOf(buckets, (bucket) => bucket.decisions);
  /** @type {[string | null, number][]} */
  const counts = named.map((arm) => [arm, sumOf(buckets, (bucket) => armIn(bucket, arm)?.decisions ?? 0)]);
  counts.push([null, decisions - sumOf(counts, ([, count]) => count)]);
  return new Map(counts.map(([arm, count]) => [arm, count / decisions]));
}

/**
 * Mean predicted and mean realised reward of an arm in these buckets.
 *
 * @param {Bucket[]} buckets
 * @param {string} arm
 */
export function armRewards(buckets, arm) {
  const parts = buckets.flatMap((bucket) => armIn(bucket, arm) ?? []);
  const decisions = sumOf(parts, (part) => part.decisions);
  const settled = sumOf(parts, (part) => part.settled);
  return {
    decisions,
    settled,
    predicted: ratio(
      sumOf(parts, (part) => part.predicted),
      decisions,
    ),
    realised: ratio(
      sumOf(parts, (part) => part.realised),
      settled,
    ),
  };
}

/* --- the model --- */

/**
 * The model at the start of each bucket and now. Buckets from before the server started have none.
 *
 * @typedef {{ models: (Model | null)[], x: number[], decisions: number[], seconds: number[] }} ModelSeries
 *
 * @param {StreamInfo} info
 * @param {Series} series
 * @returns {ModelSeries} the models, their places, and how much data each had
 */
export function modelSeries(info, { buckets, starts, ends, before }) {
  const now = { norm: Math.hypot(...Object.values(info.theta)), memory: info.memory, rate: info.drift?.rate ?? null };
  const times = [...buckets.map(({ since }) => since), buckets[buckets.length - 1].until];
  return {
    models: [...buckets.map(({ model }) => model), now],
    x: [...starts, ends[ends.length - 1]],
    decisions: [...before, info.counts.decisions],
    seconds: times.map((time) => parseTime(time) - parseTime(info.created)),
  };
}
