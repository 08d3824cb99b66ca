/** What the numbers of a stream mean, in words. */

/** @import { Calibration, MemoryUnit, StreamInfo } from "./types.js" */

import { countOf, formatCount, formatDuration, formatNumber } from "./format.js";

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
 * @param {Pick<StreamInfo, "drift" | "memory" | "memory_unit" | "counts">} info
 * @returns {{ kind: "fixed" | "drift" | "steady" | "unknown", short: string, sentence: string }}
 */
export function describeDrift({ drift, memory, memory_unit: unit, counts }) {
  const coversAll = memory === null || (drift !== null && unit === "decisions" && memory >= counts.decisions);
  const used = describeMemory(coversAll ? null : memory, unit);
  if (drift === null) {
    const sentence =
      memory === null
        ? "This stream does not forget: it uses all data so far and does not estimate drift."
        : `This stream forgets at a fixed rate: it uses ${used} and does not estimate drift.`;
    return { kind: "fixed", short: "not estimated", sentence };
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
  const reason =
    counts.rewards > 0 ? "The rewards so far fit drift and no drift equally well." : "No reward has arrived yet.";
  return { kind: "unknown", short: "too little data", sentence: `Too little data to detect drift. ${reason}` };
}

/**
 * How long what was learned keeps its worth; nothing while the data do not tell.
 *
 * @param {Pick<StreamInfo, "drift" | "half_life">} info
 * @returns {{ short: string | null, sentence: string }}
 */
export function describeHalfLife({ drift, half_life: { decisions, seconds, text } }) {
  if (drift !== null && drift.verdict === "too little data to tell") return { short: null, sentence: "" };
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
 * @returns {{ kind: "none" | "off" | "fits" | "leans", sentence: string }}
 */
export function describeCalibration({ recent, is_off: isOff }) {
  const { settled, mean_prediction: predicted, mean_reward: realised, z } = recent;
  if (predicted === null || realised === null) return { kind: "none", sentence: "No reward has been learned yet." };
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
