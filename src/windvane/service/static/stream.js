/** One stream: its head, its numbers, what to do first, its charts and its settings. */

/** @import { AxisKind, Charts, Series, StreamInfo } from "./types.js" */

import { showArms } from "./arms.js";
import { $, element, setDetails, setText, setTimeText, fillTable, syncChildren } from "./dom.js";
import { decideExample, rewardExample, showCommand } from "./examples.js";
import { showNorm, showTheta } from "./estimate.js";
import { describeDrift, describeHalfLife, describeStart, describeTimeout, FEWEST, formatMemory } from "./findings.js";
import { countOf, formatCount, formatNumber, formatPercent, formatSetting } from "./format.js";
import { showManagement } from "./management.js";
import { showMemory } from "./memory.js";
import { joinTexts } from "./panel.js";
import { showPredictions } from "./predictions.js";
import { showRecent } from "./recent.js";
import { showReward } from "./reward.js";
import { colorArms, makeSeries } from "./series.js";

/**
 * @param {StreamInfo} info
 * @param {Charts} charts
 * @param {AxisKind} kind
 */
export function showStream(info, charts, kind) {
  const series = makeSeries(charts, kind);
  showHead(info);
  showNumbers(info, charts, series);
  showStart(info, charts);
  $("#charts").hidden = charts.buckets.length === 0;
  $("#charts-pending").hidden = info.counts.decisions === 0 || charts.buckets.length > 0;
  if (charts.buckets.length > 0) {
    showReward(info, charts, series);
    const colors = colorArms(info.name, charts, series.last);
    showArms(info, charts, series, colors);
    showPredictions(info, charts, series, colors);
    showMemory(info, series);
    showNorm(info, series);
    showTheta(info);
    showRecent(info, charts);
  }
  showSettings(info);
  showManagement(info);
}

/** @param {StreamInfo} info */
function showHead({ name, title, policy, link, dim, created, archived, alerts }) {
  setText($("#title"), title || name);
  setText($("#about code"), name);
  setText($("#about-policy"), ` · ${policy}, ${link} link, ${countOf(dim, "feature")} · `);
  setTimeText($("#about-created"), "created ", created);
  $("#archived").hidden = archived === null;
  setTimeText($("#archived"), "Archived ", archived, "both", ". It makes no decisions and learns nothing.");
  const sentences =
    archived === null ? alerts.map(({ message }) => `${message[0].toUpperCase()}${message.slice(1)}.`) : [];
  $("#alerts").hidden = sentences.length === 0;
  syncChildren($("#alerts"), sentences, { key: (text) => text, create: (text) => element("li", {}, text) });
}

/** @typedef {[term: string, value: string, note: string]} Figure */

/**
 * @param {StreamInfo} info
 * @param {Charts} charts
 * @param {Series} series
 * @returns {Figure[]}
 */
function makeFigures(info, { buckets }, { recentMean }) {
  const { counts } = info;
  const { decisions, held } = counts;
  const { epsilon = 0 } = info.settings;
  const projected = buckets.some((bucket) => bucket.projected !== null) ? info.projected_share : null;
  return [
    ["Decisions", formatCount(decisions), decisions === 0 ? "none yet" : ""],
    ...countFigures(info),
    [
      "Mean reward",
      formatNumber(info.mean_reward),
      describeMean(counts, recentMean) || (held > 0 ? "known after the reward timeout" : ""),
    ],
    memoryFigure(info),
    [
      "Drift",
      describeStart(info) === null ? describeDrift(info).short : "–",
      epsilon > 0 ? `epsilon ${formatSetting(epsilon)}` : "",
    ],
    .../** @type {Figure[]} */ (
      projected === null ? [] : [["Projected", formatPercent(projected), "of decisions"]] // not all policies report it
    ),
  ];
}

/**
 * @param {StreamInfo["counts"]} counts
 * @param {number | null} recentMean
 */
function describeMean({ settled }, recentMean) {
  if (settled > 0 && settled < FEWEST) return `of ${countOf(settled, "outcome")}`;
  return recentMean === null ? "" : `recent ${formatNumber(recentMean)}`;
}

/**
 * @param {StreamInfo} info
 * @returns {Figure}
 */
function memoryFigure(info) {
  const { memory, memory_unit: unit, drift } = info;
  const start = describeStart(info);
  if (start !== null) return ["Memory", "–", start];
  const unlimited = drift === null ? "does not forget" : "forgets nothing now";
  const used = memory === null ? unlimited : "effectively used";
  return ["Memory", formatMemory(memory, unit), describeHalfLife(info).short ?? used];
}

/**
 * @param {StreamInfo} info
 * @returns {Figure[]}
 */
function countFigures({ counts, settings }) {
  const { reward_timeout: timeout = null, default_reward: reward = null } = settings;
  const { decisions, rewards, pending, held, expired, dropped, history_rows: rows } = counts;
  const rewardNote = joinTexts(
    "; ",
    rewards > 0 && decisions > 0 && `${formatPercent(rewards / decisions)} of decisions`,
    rows > 0 && `and ${countOf(rows, "row")} of history`,
  );
  const pendingNote = joinTexts(
    "; ",
    timeout === null ? "no reward timeout" : `reward timeout ${describeTimeout(timeout)}`,
    held > 0 && `${countOf(held, "reward")} held until then`,
  );
  const expiredNote = joinTexts(
    "; ",
    reward !== null && `default reward ${formatSetting(reward)}`,
    dropped > 0 && `${formatCount(dropped)} dropped`,
  );
  return [
    ["Rewards", formatCount(rewards), rewardNote],
    ["Pending", formatCount(pending), pendingNote],
    ["Expired", formatCount(expired), expiredNote],
  ];
}

/**
 * @param {StreamInfo} info
 * @param {Charts} charts
 * @param {Series} series
 */
function showNumbers(info, charts, series) {
  syncChildren($("#numbers"), makeFigures(info, charts, series), {
    key: ([term]) => term,
    create: ([term]) =>
      element("div", {}, element("dt", {}, term), element("dd"), element("dd", { className: "note" })),
    update: (item, [, value, note]) => {
      const [, figure, remark] = /** @type {HTMLElement[]} */ ([...item.children]);
      figure.classList.toggle("word", !/^[\d<>–]/.test(value));
      setText(figure, value);
      const last = charts.recent.reduce((latest, { time }) => (time > latest ? time : latest), "");
      if (item.dataset.key === "Decisions" && last !== "") setTimeText(remark, "last ", last);
      else setText(remark, note);
    },
  });
}

/**
 * @param {StreamInfo} info
 * @param {Charts} charts
 */
function showStart(info, charts) {
  const { archived, counts, settings } = info;
  const pending = charts.recent.find(({ status }) => status === "pending");
  const isEmpty = counts.decisions === 0;
  const canStart = archived === null && (isEmpty || (counts.rewards === 0 && pending !== undefined));
  $("#start").hidden = !canStart && !isEmpty;
  $("#start-command").hidden = !canStart;
  if (isEmpty) {
    setText($("#start-heading"), "No decision yet");
    const first = settings.scaling === "fit" ? " It fits its scaling to history, so send history first." : "";
    setText(
      $("#start-message"),
      canStart ? `Request the first decision.${first}` : "It was archived before its first decision.",
    );
    if (canStart) showCommand($("#start-command"), decideExample(info));
  } else if (canStart && pending !== undefined) {
    setText($("#start-heading"), "No reward yet");
    setText($("#start-message"), "The stream learns from rewards. Record the reward of a decision.");
    showCommand($("#start-command"), rewardExample(info, pending.id));
  }
}

/** @param {StreamInfo} info */
function showSettings({ settings }) {
  const rows = Object.entries(settings)
    .filter(([, value]) => value !== null)
    .map(([name, value]) => ({ key: name, cells: [name, typeof value === "string" ? value : JSON.stringify(value)] }));
  setDetails($("#settings"), (table) =>
    fillTable(
      table,
      "Settings of this stream; null settings are omitted",
      [{ head: "Setting" }, { head: "Value" }],
      rows,
    ),
  );
}
