/** What the numbers of a stream mean, in words. */

/** @import { Calibration, MemoryUnit, StreamInfo } from "./types.js" */

import { countOf, formatCount, formatDuration, formatNumber } from "./format.js";

/** Outcomes below which nothing is concluded from them: the standard error of a rate is then above a tenth. */
export const FEWEST = 20;

/** @param {Pick<StreamInfo["counts"], "settled" | "history_rows">} counts */
export const countLearned = ({ settled, history_rows: rows }) => settled + rows;

/**
 * Why the stream has not learned enough to say how fast the world moves; null if it has, or does not estimate it.
 *
 * @param {Pick<StreamInfo, "drift" | "counts">} info
 */
export function describeStart({ drift, counts }) {
  const learned = countLearned(counts);
  if (drift === null || learned >= FEWEST) return null;
  return learned === 0 ? "nothing learned yet" : "too few outcomes yet";
}

/**
 * @param {number | null} memory null: infinite
 * @param {MemoryUnit} unit
 */
export function describeMemory(memory, unit) {
  if (memory === null) return "all data so far";
  return unit === "seconds"
    ? `about the last ${formatDuration(memory)}`
    : `about the last ${formatCount(Math.round(memory))} decisions`;
}

/**
 * @param {number | null} memory
 * @param {MemoryUnit} unit
 */
export function formatMemory(memory, unit) {
  if (memory === null) return "all data";
  return unit === "seconds" ? formatDuration(memory) : countOf(Math.round(memory), "decision");
}

/**
 * The verdict on drift: a few words, and a sentence.
 *
 * The verdict is about all rewards, the half-life about the latest ones: without one, the world is calm now.
 *
 * @param {Pick<StreamInfo, "drift" | "memory" | "memory_unit" | "counts" | "half_life">} info
 * @returns {{ kind: "fixed" | "drift" | "steady" | "unknown", short: string, sentence: string }}
 */
export function describeDrift({ drift, memory, memory_unit: unit, counts, half_life: halfLife }) {
  const coversAll = memory === null || (drift !== null && unit === "decisions" && memory >= counts.decisions);
  const used = describeMemory(coversAll ? null : memory, unit);
  if (drift === null) {
    const sentence =
      memory === null
        ? "This stream does not forget: it uses all data so far and does not estimate drift."
        : `This stream forgets at a fixed rate: it uses ${used} and does not estimate drift.`;
    return { kind: "fixed", short: "not estimated", sentence };
  }
  const start = describeStart({ drift, counts });
  if (start !== null) {
    const isEmpty = countLearned(counts) === 0;
    const sentence = isEmpty ? "Nothing has been learned yet." : "Too few outcomes yet to detect drift.";
    return { kind: "unknown", short: start, sentence };
  }
  if (drift.verdict === "drift" && halfLife.decisions === null && halfLife.seconds === null) {
    return {
      kind: "drift",
      short: "drifted before",
      sentence: `Rewards drifted, but the latest ones fit a world without drift; decisions use ${used}.`,
    };
  }
  if (drift.verdict === "drift") {
    return {
      kind: "drift",
      short: "drift detected",
      sentence: `Rewards are drifting. Old rewards mislead, so decisions use ${used}.`,
    };
  }
  if (drift.verdict === "no drift seen") {
    return {
      kind: "steady",
      short: "no drift detected",
      sentence: `No drift detected; decisions use ${used}. There may be drift that is too slow to detect.`,
    };
  }
  return {
    kind: "unknown",
    short: "too little data",
    sentence: "Too little data to detect drift. The rewards so far fit drift and no drift equally well.",
  };
}

/**
 * How long what was learned keeps its worth; nothing while the data do not tell.
 *
 * @param {Pick<StreamInfo, "drift" | "counts" | "half_life">} info
 * @returns {{ short: string | null, sentence: string }}
 */
export function describeHalfLife({ drift, counts, half_life: { decisions, seconds, text } }) {
  const isUnknown = drift !== null && drift.verdict === "too little data to tell";
  if (isUnknown || describeStart({ drift, counts }) !== null) return { short: null, sentence: "" };
  if (decisions === null && seconds === null) return { short: null, sentence: `Information half-life: ${text}.` };
  const count = decisions === null || seconds === null ? "" : ` (${countOf(Math.round(decisions), "decision")})`;
  const meaning = "after that time, half of the information in a reward is lost";
  return { short: `half-life ${text}`, sentence: `Information half-life: ${text}${count}; ${meaning}.` };
}

const NOISE = 2; // standard errors

/**
 * Whether predictions are right on average, in a sentence.
 *
 * @param {Calibration} calibration
 * @param {number} learned how many outcomes were learned; those of decisions before the first do not count
 * @returns {{ kind: "none" | "off" | "fits" | "leans", sentence: string }}
 */
export function describeCalibration({ recent, is_off: isOff }, learned) {
  const { settled, mean_prediction: predicted, mean_reward: realised, z } = recent;
  if (learned === 0) return { kind: "none", sentence: "No reward has been learned yet." };
  if (learned < FEWEST) return { kind: "none", sentence: "Too few outcomes yet to judge the predictions." };
  if (predicted === null || realised === null) {
    return { kind: "none", sentence: "Nothing had been learned when the decisions with a known outcome were made." };
  }
  if (settled < FEWEST) return { kind: "none", sentence: "Too few outcomes yet to judge the predictions." };
  const side = predicted > realised ? "high" : "low";
  const means = `predicted ${formatNumber(predicted)}, realised ${formatNumber(realised)}`;
  const basis = `${means} on average over the last ${countOf(settled, "outcome")}`;
  const size = Math.abs(z ?? 0);
  if (isOff) return { kind: "off", sentence: `Predictions are too ${side}: ${basis}.` };
  if (size < NOISE) return { kind: "fits", sentence: `Predictions agree with the rewards within noise: ${basis}.` };
  return {
    kind: "leans",
    sentence: `Predictions are a little ${side}: ${basis}, ${formatNumber(size)} standard errors apart.`,
  };
}

/**
 * A log likelihood ratio as odds.
 *
 * @param {number} nats
 */
export function describeEvidence(nats) {
  const ratio = Math.exp(Math.min(Math.abs(nats), 50));
  if (ratio < 1.05) return "none either way";
  const odds =
    ratio >= 1e6 ? "more than a million" : formatNumber(ratio < 10 ? Number(ratio.toPrecision(2)) : Math.round(ratio));
  return `${odds} to 1 ${nats > 0 ? "for" : "against"} drift`;
}

/**
 * A reward timeout: "2h", or a number of decisions.
 *
 * @param {string | number} timeout
 */
export const describeTimeout = (timeout) =>
  typeof timeout === "number" ? countOf(timeout, "further decision") : timeout;

/**
 * The estimate's norm against its bound. The adaptive policy learns its scale unless S was set, and projects nothing.
 *
 * @param {StreamInfo} info
 */
export function describeBound({ policy, settings, S }) {
  const projects = policy !== "AdaptiveGLMUCB";
  const learnsScale = !projects && (settings.S ?? null) === null;
  return { projects, learnsScale, bound: learnsScale ? null : S };
}
