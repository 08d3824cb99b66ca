/** The dialog that explains one decision. */

/** @import { DecisionRecord, Explanation, RecentDecision } from "./types.js" */

import { decisionPath, describeError, get } from "./api.js";
import { $, element, setText, syncChildren, timeElement } from "./dom.js";
import { formatNumber, formatPercent } from "./format.js";

/** @type {HTMLDialogElement} */
const dialog = $("#decision");

/** @type {{ stream: string, id: string, status: string | null } | null} */
let shown = null;

/**
 * Open the dialog for a decision, or close it.
 *
 * @param {string | null} stream
 * @param {string | null} id
 */
export function showDecision(stream, id) {
  if (stream === null || id === null) {
    shown = null;
    dialog.close();
    return;
  }
  if (shown !== null && shown.stream === stream && shown.id === id) return;
  shown = { stream, id, status: null };
  setText($("code", dialog), id);
  setText($(".text", dialog), "Loading");
  $("dl", dialog).replaceChildren();
  if (!dialog.open) dialog.showModal();
  load(stream, id);
}

/**
 * Load the decision again if its outcome has changed.
 *
 * @param {string} stream
 * @param {RecentDecision[]} recent
 */
export function refreshDecision(stream, recent) {
  if (shown === null || shown.status === null || shown.stream !== stream) return;
  const { id, status } = shown;
  if (recent.some((row) => row.id === id && row.status !== status)) load(stream, id);
}

/**
 * @param {string} stream
 * @param {string} id
 */
async function load(stream, id) {
  const isCurrent = () => shown !== null && shown.stream === stream && shown.id === id;
  try {
    const path = decisionPath(stream, id);
    /** @type {[DecisionRecord, Explanation]} */
    const [record, explanation] = await Promise.all([get(path), get(`${path}/explanation`)]);
    if (!isCurrent() || shown === null) return;
    shown.status = record.status;
    show(record, explanation);
  } catch (error) {
    if (isCurrent()) setText($(".text", dialog), describeError(error));
  }
}

/**
 * @param {DecisionRecord} record
 * @param {Explanation} explanation
 */
function show(record, { text, score, ...explanation }) {
  const { decision } = record;
  setText($(".text", dialog), /[.!?]$/.test(text) ? text : `${text}.`);
  /** @type {[string, Node | string][]} */
  const facts = [
    ["Time", timeElement(decision.time, "both")],
    ["Arm", String(decision.arm)],
    ["Reward", describeOutcome(record)],
    ["Prediction", formatNumber(explanation.prediction)],
    ["Bonus", formatNumber(explanation.bonus)],
    ["Score", `${formatNumber(score)} (prediction plus bonus)`],
    [
      "Next best arm",
      explanation.rival === null ? "none" : `${explanation.rival}, score ${formatNumber(explanation.rival_score)}`,
    ],
    ["Explored", explanation.explored ? `yes, the policy preferred ${explanation.preferred}` : "no"],
    ["Propensity", decision.propensity === null ? "unknown" : formatPercent(decision.propensity)],
  ];
  if (explanation.projected !== null) {
    facts.push(["Estimate", explanation.projected ? "outside the ball of radius S" : "within the ball of radius S"]);
  }
  syncChildren($("dl", dialog), facts, {
    key: ([term]) => term,
    create: ([term]) => element("div", {}, element("dt", {}, term), element("dd")),
    update: (item, [, value]) => {
      if (typeof value === "string") setText($("dd", item), value);
      else if ($("dd", item).childElementCount === 0) $("dd", item).replaceChildren(value);
    },
  });
}

/** @param {DecisionRecord} record */
function describeOutcome({ status, reward, late_reward: late }) {
  if (status === "rewarded") return formatNumber(reward);
  return `${status}${late === null ? "" : `; ${formatNumber(late)} arrived too late and was not learned`}`;
}

/** @param {() => void} onClose */
export function startDialog(onClose) {
  dialog.addEventListener("close", () => {
    if (shown !== null) onClose();
  });
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close(); // the backdrop
  });
}
