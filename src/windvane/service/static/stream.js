/* One stream on the page: what the server tells of it, as numbers, charts and tables. */

import { armsChart, chart, memoryChart, normChart, rewardChart, thetaChart } from "./charts.js";
import { $, command, element, moment, say, table } from "./dom.js";
import * as examples from "./examples.js";
import * as words from "./words.js";

const NAMED = 7; // arms with a colour of their own; the rest are drawn together
const OTHER = "all others";
const COORDINATES = 12;
const ROWS = 10; // recent decisions before one asks for more
const { count, number, percent, plural } = words;

let shown = null; // { document, axis }, the latest
let only = "all";
let unfolded = false;

export function show(stream, axis) {
  if (shown !== null && shown.stream.name !== stream.name) [only, unfolded] = ["all", false];
  shown = { stream, axis };
  const series = seriesOf(stream, axis);
  showHead(stream);
  showNumbers(stream, series);
  showStart(stream);
  $("#charts").hidden = stream.decisions === 0;
  if (stream.decisions > 0) {
    showReward(stream, series);
    showArms(stream, series);
    showMemory(stream, series);
    showNorm(stream, series);
    showTheta(stream);
    showRecent(stream);
  }
  showSettings(stream);
}

/* Whether most of the time nothing happened: then a chart over time is empty but for its edges. */
export function inBursts({ statistics: { buckets } }) {
  const ends = buckets.map(({ until }) => until);
  const longest = Math.max(...ends.slice(1).map((end, i) => end - ends[i]));
  return buckets.length >= 10 && longest > 0.5 * (ends.at(-1) - buckets[0].since);
}

/* --- from buckets to series --- */

/* Averages go over the last `width` buckets: enough to be calm, few enough to follow. */
function seriesOf({ statistics, created, decisions: seen, ...now }, kind) {
  const { buckets } = statistics;
  const width = Math.max(5, Math.ceil(buckets.length / 12));
  let decisions = 0;
  const starts = [], ends = [], before = [];
  for (const bucket of buckets) {
    before.push(decisions + 1);
    starts.push(kind === "time" ? words.local(bucket.since) : decisions + 1);
    decisions += bucket.decisions;
    ends.push(kind === "time" ? words.local(bucket.until) : decisions);
  }
  const span = (i) => buckets.slice(Math.max(0, i - width + 1), i + 1);
  const sum = (list, key) => list.reduce((total, bucket) => total + (bucket[key] ?? 0), 0);
  const mean = (list) => (sum(list, "rewards") ? sum(list, "total") / sum(list, "rewards") : null);
  const last = buckets.length ? span(buckets.length - 1) : [];
  return {
    kind, range: rangeOf(buckets, decisions, kind), buckets, starts, ends, before, width, span, last,
    means: buckets.map((bucket) => mean([bucket])),
    recent: buckets.map((_, i) => mean(span(i))),
    lately: mean(last),
    latelyCount: sum(last, "rewards"),
    // the model as it was when each bucket began, and as it is now
    model: [...buckets.map((bucket) => bucket.model), { ...now, norm: Math.hypot(...Object.values(now.theta)) }],
    modelX: [...starts, kind === "time" ? ends.at(-1) : seen],
    age: [...buckets.map((bucket) => bucket.since - created), (buckets.at(-1)?.until ?? created) - created],
    seen: [...before, seen],
  };
}

/* The ends of the horizontal axis, the same in all charts. */
function rangeOf(buckets, decisions, kind) {
  if (kind !== "time") return [0, 1.02 * Math.max(decisions, 1)];
  const [first, last] = [buckets[0]?.since ?? 0, buckets.at(-1)?.until ?? 0];
  const edge = last > first ? 0.015 * (last - first) : 0.5;
  return [words.local(first - edge), words.local(last + edge)];
}

/* --- head and numbers --- */

function showHead({ name, title, policy, link, dim, created, archived, alerts }) {
  say($("#title"), title || name);
  $("#about").replaceChildren(
    element("code", {}, name), ` · ${policy}, ${link} link, ${plural(dim, "coordinate")} · created `, moment(created),
  );
  $("#archived").hidden = archived === null;
  if (archived !== null) {
    $("#archived").replaceChildren("Archived ", moment(archived, "both"), ". It decides and learns no more.");
  }
  showAlerts(archived === null ? alerts : []);
}

/* Rebuilt only when the text changes, so that it can be selected and is not read out again. */
function showAlerts(alerts) {
  const list = $("#alerts");
  const sentences = alerts.map(({ message }) => `${message[0].toUpperCase()}${message.slice(1)}.`);
  list.hidden = sentences.length === 0;
  if (list.dataset.text === sentences.join("\n")) return;
  list.dataset.text = sentences.join("\n");
  list.replaceChildren(...sentences.map((sentence) => element("li", {}, sentence)));
}

function showNumbers(stream, { lately }) {
  const { decisions, rewards, history, mean_reward: mean, pending, held, expired, dropped, statistics, config } = stream;
  const last = statistics.recent.at(-1);
  const { short } = words.drift(stream);
  const known = statistics.buckets.some(({ projected }) => projected !== null);
  const rows = [
    ["Decisions", count(decisions), last ? ["last ", moment(last.time)] : ["none yet"]],
    ["Rewards", count(rewards), [[
      rewards > 0 ? `${percent(rewards / decisions)} of decisions` : "", history > 0 ? `${count(history)} in bulk` : "",
    ].filter(Boolean).join("; ")]],
    ["Mean reward", number(mean), [lately === null ? (held > 0 ? "available when the first wait ends" : "") : `lately ${number(lately)}`]],
    ["Pending", count(pending), [[
      config.wait === null ? "no time limit" : `expire after ${words.wait(config.wait)}`,
      held > 0 ? `${plural(held, "reward")} held until then` : "",
    ].filter(Boolean).join("; ")]],
    ["Expired", count(expired), [[
      expired && config.missing !== null ? `counted as ${words.given(config.missing)}` : "",
      dropped > 0 ? `${count(dropped)} dropped because of max_pending` : "",
    ].filter(Boolean).join("; ")]],
    ["Memory", ...words.memoryParts(stream.memory, stream.memory_unit)],
    ["Drift", short, []],
    ["Projected", known ? percent(stream.projected_share) : "–", [known ? "of decisions" : decisions ? "not told by this policy" : ""]],
  ];
  $("#numbers").replaceChildren(...rows.map(([term, value, note]) => element(
    "div", {}, element("dt", {}, term), element("dd", { className: /\d|^–$/.test(value) ? "" : "word" }, value),
    element("dd", { className: "note" }, ...note),
  )));
}

function showStart(stream) {
  const { archived, decisions, rewards, statistics, config } = stream;
  const waiting = statistics.recent.find((row) => row.state === "pending");
  const fresh = archived === null && (decisions === 0 || (rewards === 0 && waiting !== undefined));
  $("#start").hidden = !fresh && decisions > 0;
  $("#start-command").hidden = !fresh;
  if (decisions === 0) {
    say($("#start-heading"), "No decision yet");
    const first = config.scaling === "fit" ? " (it fits its scaling on history, so give it some first)" : "";
    say($("#start-message"), fresh ? `Ask the stream for its first one${first}:` : "It was archived before it decided anything.");
    if (fresh) command($("#start-command"), examples.decide(stream));
  } else if (fresh) {
    say($("#start-heading"), "No reward yet");
    say($("#start-message"), "Until the first one comes, nothing can be learnt. Tell the stream how a decision went:");
    command($("#start-command"), examples.reward(stream, waiting.decision));
  }
}

/* --- parts with a chart --- */

/* reading: the numbers of now; label: the chart in words; blank: why there is none. */
function panel(id, { reading, label, caption, blank = null, draw = null }) {
  const section = document.getElementById(id);
  const div = $(".chart", section);
  say($(".reading", section), reading);
  say($("figcaption", section), caption);
  say($(".blank", section), blank ?? "");
  $(".blank", section).hidden = blank === null;
  div.hidden = blank !== null;
  if (blank === null) {
    div.setAttribute("aria-label", `${label} ${reading}`);
    chart(div).draw(draw);
  }
  return section;
}

/* What is in a details element is made when it is opened, and kept up while it is open. */
const behind = new WeakMap();

function details(place, make) {
  behind.set(place, make);
  if (place.open) fill(place);
}

function fill(place) {
  const make = behind.get(place);
  if (make === undefined) return;
  let box = $(".scroll", place);
  if (box === null) {
    box = element("div", { className: "scroll", tabIndex: 0, role: "region" });
    box.setAttribute("aria-label", $("summary", place).textContent);
    place.append(box);
  }
  box.replaceChildren(make());
}

document.addEventListener("toggle", (event) => {
  if (event.target.open) fill(event.target);
}, true);

const backwards = (list) => list.map((_, i) => list.length - 1 - i);
const COUNT = { number: true };

function showReward(stream, { kind, range, buckets, ends, means, recent, lately, latelyCount, width }) {
  const { rewards, defaulted, mean_reward: overall, statistics, config } = stream;
  const known = recent.filter((value) => value !== null);
  const section = panel("reward", {
    reading: lately === null ? "No reward has come yet."
      : `${number(lately)} over the last ${plural(latelyCount, "reward")}, ${number(overall)} over all ${
        count(rewards + defaulted)}.`,
    label: known.length
      ? `Reward rate over time, between ${number(Math.min(...known))} and ${number(Math.max(...known))}.` : "",
    caption: `Each dot is the mean of the rewards that came in during ${plural(statistics.width, "decision")}; the line `
      + `averages the last ${width} dots, the dashed line all rewards.${config.missing === null ? ""
        : ` A decision that expires counts as ${words.given(config.missing)}, when it does.`}`,
    blank: known.length ? null : "The chart begins with the first reward.",
    draw: rewardChart({ kind, range, x: ends, means, counts: buckets.map((bucket) => bucket.rewards), recent, overall }),
  });
  details($("details", section), () => table(
    "Reward rate, the latest first",
    [{ head: "Until" }, { head: "Decisions", ...COUNT }, { head: "Rewards", ...COUNT }, { head: "Mean reward", ...COUNT },
      { head: "Average", ...COUNT }],
    backwards(buckets).map((i) => [
      words.clock(buckets[i].until), count(buckets[i].decisions), count(buckets[i].rewards), number(means[i]),
      number(recent[i]),
    ]),
  ));
}

/* --- arms --- */

const slots = new Map(); // by stream: which arm has which colour, the same for as long as it is among the first

function slotsOf(name, arms) {
  const had = slots.get(name) ?? new Map();
  const kept = new Map(arms.filter((arm) => had.has(arm)).map((arm) => [arm, had.get(arm)]));
  const taken = new Set(kept.values());
  for (const arm of arms) {
    if (kept.has(arm)) continue;
    let free = 0;
    while (taken.has(free)) free += 1;
    kept.set(arm, free);
    taken.add(free);
  }
  slots.set(name, kept);
  return kept;
}

/* How often each arm was chosen in these buckets, the most often first. */
function chosenIn(buckets) {
  const sums = new Map();
  for (const { arms } of buckets) {
    for (const [arm, chosen] of Object.entries(arms)) sums.set(arm, (sums.get(arm) ?? 0) + chosen);
  }
  return [...sums].sort(([, a], [, b]) => b - a);
}

function showArms(stream, { kind, range, buckets, starts, ends, span, last }) {
  const totals = new Map(Object.entries(stream.statistics.arms));
  const ranked = [...totals.keys()].sort((a, b) => totals.get(b) - totals.get(a));
  const lately = chosenIn(last);
  // half of the colours are for what is chosen now, the rest for what was chosen most
  const first = new Set([...lately.slice(0, Math.ceil(NAMED / 2)).map(([arm]) => arm), ...ranked].slice(0, 2 * NAMED));
  const colour = slotsOf(stream.name, [...first].slice(0, NAMED));
  const named = [...colour.keys()].sort((a, b) => colour.get(a) - colour.get(b));
  const shares = (list) => {
    const decided = list.reduce((total, bucket) => total + bucket.decisions, 0);
    const sums = new Map(named.map((arm) => [arm, 0]));
    let rest = decided;
    for (const bucket of list) {
      for (const [arm, chosen] of Object.entries(bucket.arms)) {
        if (!sums.has(arm)) continue;
        sums.set(arm, sums.get(arm) + chosen);
        rest -= chosen;
      }
    }
    return new Map([...sums, [null, rest]].map(([arm, chosen]) => [arm, chosen / decided]));
  };
  const now = shares(last);
  const overTime = buckets.map((_, i) => shares(span(i)));
  const rest = ranked.length > named.length || stream.statistics.others > 0;
  const drawn = [...named, ...(rest ? [null] : [])];
  const named_ = (arm) => arm ?? OTHER;
  const flat = starts[0] === ends.at(-1);
  const [top, chosen] = lately[0];
  const topShare = chosen / last.reduce((total, bucket) => total + bucket.decisions, 0);
  const section = panel("arms", {
    reading: `Lately mostly ${words.short(top, 60)} (${percent(topShare)}); ${
      stream.statistics.others ? `more than ${count(ranked.length)} arms` : plural(ranked.length, "arm")} chosen so far.`,
    label: `Share of arms over time. Lately: ${drawn.map((arm) => `${named_(arm)} ${percent(now.get(arm))}`).join(", ")}.`,
    caption: `How often each arm was chosen, averaged over the last ${plural(span(buckets.length - 1).reduce(
      (total, bucket) => total + bucket.decisions, 0), "decision")}.`,
    blank: flat ? "The chart begins with the second decision." : null,
    draw: armsChart({
      kind, range, x: [starts[0], ...ends],
      arms: drawn.map((arm) => ({
        name: named_(arm), slot: arm === null ? null : colour.get(arm),
        shares: [overTime[0], ...overTime].map((share) => share.get(arm)),
      })),
    }),
  });
  const all = new Map([...totals].map(([arm, chosen]) => [arm, chosen / stream.decisions]));
  const namedShare = named.reduce((total, arm) => total + (all.get(arm) ?? 0), 0);
  $("#arms-legend tbody").replaceChildren(...drawn.map((arm) => {
    const swatch = element("i");
    swatch.style.background = `var(--series-${arm === null ? "other" : colour.get(arm)})`;
    const name = element("th", { scope: "row", title: named_(arm) }, swatch, named_(arm));
    const lately = element("td", { className: "number" }, percent(now.get(arm)));
    const whole = arm === null ? 1 - namedShare : all.get(arm) ?? 0;
    const ever = element("td", { className: "number" }, percent(Math.max(whole, 0)));
    return element("tr", {}, name, lately, ever);
  }));
  details($("details", section), () => table(
    "Share of the decisions of each stretch, the latest first",
    [{ head: "Until" }, { head: "Decisions", ...COUNT }, ...drawn.map((arm) => ({ head: words.short(named_(arm), 40), ...COUNT }))],
    backwards(buckets).map((i) => {
      const own = shares([buckets[i]]);
      return [words.clock(buckets[i].until), count(buckets[i].decisions), ...drawn.map((arm) => percent(own.get(arm)))];
    }),
  ));
  $("#all-arms").hidden = !rest;
  details($("#all-arms"), () => table(
    stream.statistics.others ? `The ${count(ranked.length)} arms chosen last; others: ${count(stream.statistics.others)}`
      : "All arms",
    [{ head: "Arm" }, { head: "Decisions", ...COUNT }, { head: "Share", ...COUNT }],
    ranked.map((arm) => [arm, count(totals.get(arm)), percent(all.get(arm))]),
  ));
}

/* --- memory, estimate --- */

function showMemory(stream, { kind, range, model, modelX, age, seen, buckets }) {
  const { drift, memory_unit: unit } = stream;
  const verdict = words.drift(stream);
  const everything = unit === "seconds" ? age.map((seconds) => Math.max(seconds, 1)) : seen;
  const memories = model.map(({ memory }, i) => memory ?? everything[i]);
  const section = panel("memory", {
    reading: verdict.long,
    label: `Effective memory over time, now ${words.memoryShort(stream.memory, unit)}.`,
    caption: `How far back decisions look, on a logarithmic scale; dotted: everything so far${
      drift === null ? "." : "; the bar at the end: the likely range."}`,
    draw: memoryChart({
      kind, range, x: modelX, memories, words: model.map(({ memory }) => words.memory(memory, unit)), all: everything, unit,
      low: drift === null ? null : drift.memory_low,
      high: drift === null ? null : drift.memory_high,
    }),
  });
  section.dataset.verdict = verdict.kind;
  $("#drift").hidden = drift === null;
  if (drift !== null) {
    const range = (low, high, tell) => (low === high ? tell(low) : `${tell(low)} to ${tell(high)}`);
    const memory = (value) => words.memoryShort(value, unit);
    details($("#drift"), () => table("What the rewards say about the drift; rough", [{ head: "Quantity" }, { head: "Estimate" }], [
      ["Verdict", drift.verdict],
      ["Evidence (20 to 1 counts as drift)", words.evidence(drift.evidence)],
      ["Memory that predicts best", memory(drift.memory)],
      ["Its likely range", range(drift.memory_low, drift.memory_high, memory)],
      ["Speed of the drift, per decision", number(drift.rate)],
      ["Its likely range", range(drift.rate_low, drift.rate_high, number)],
      ["Distance drifted so far", number(drift.variation)],
    ]));
  }
  details($("details:not(#drift)", section), () => table(
    "Memory, the latest first",
    [{ head: "At" }, { head: "Decisions before", ...COUNT }, { head: "Memory", ...COUNT }, { head: "Drift a decision", ...COUNT }],
    backwards(buckets).map((i) => [
      words.clock(buckets[i].since), count(seen[i] - 1), words.memoryShort(model[i].memory, unit), number(model[i].rate),
    ]),
  ));
}

function showNorm(stream, { kind, range, buckets, starts, ends, model, modelX }) {
  const { S: scale, projected_share: share } = stream;
  const projects = stream.policy !== "AdaptiveGLMUCB"; // which reports an estimate outside the ball, and keeps it
  const learnsScale = !projects && stream.config.S === null;
  const bound = learnsScale ? null : scale; // a learned scale is a belief, not a bound
  const norms = model.map(({ norm }) => norm);
  const now = norms.at(-1);
  const known = buckets.some((bucket) => bucket.projected !== null);
  const strip = known && share > 0;
  const each = buckets.map(({ projected, decisions }) => (projected === null ? null : projected / decisions));
  const where = learnsScale ? `and the learned scale is S\u00a0=\u00a0${words.given(scale)}, which is no bound`
    : bound === null ? "this policy has no bound" : `${now > bound * (1 + 1e-9) ? "outside" : "within"} its bound S\u00a0=\u00a0${words.given(bound)}`;
  const projection = strip ? `It was ${projects ? "projected back" : "outside"} for ${percent(share)} of decisions.`
    : known ? `${projects ? "No decision needed a projection" : "It was never outside"}.` : "";
  const section = panel("norm", {
    reading: `The estimate's length ‖θ̂‖ is ${number(now)}, ${where}. ${projection}`.trim(),
    label: "Length of the estimate over time against its bound.",
    caption: `The length of θ̂ over time; ${bound === null ? "no bound applies" : "shaded: the ball of radius S that is allowed"}${
      strip ? `; below: the share of decisions ${projects ? "that needed a projection back into it" : "with an estimate outside of it"}.` : "."}`,
    draw: normChart({
      kind, range, x: modelX, norms, bound, ends: [starts[0], ...ends], projected: strip ? [each[0], ...each] : null,
    }),
  });
  details($("details", section), () => table(
    "Estimate, the latest first",
    [{ head: "From" }, { head: "Length", ...COUNT }, { head: projects ? "Projected" : "Outside", ...COUNT }],
    backwards(buckets).map((i) => [
      words.clock(buckets[i].since), number(norms[i]), each[i] === null ? "–" : percent(each[i]),
    ]),
  ));
}

function showTheta(stream) {
  const all = Object.entries(stream.theta);
  const largest = [...all].sort(([, a], [, b]) => Math.abs(b) - Math.abs(a));
  const drawn = all.length <= COORDINATES ? all : largest.slice(0, COORDINATES);
  const [name, value] = largest[0];
  const section = panel("theta", {
    reading: value === 0 ? "" : `${all.length > drawn.length ? `The ${drawn.length} largest of ${count(all.length)}. ` : ""}`
      + `The largest is ${words.short(name, 60)} at ${number(value)}.`,
    label: `Coordinates of the estimate: ${drawn.map(([key, number_]) => `${key} ${number(number_)}`).join(", ")}.`,
    caption: "What speaks for an arm (right) and against it (left), and how much.",
    blank: value === 0 ? "Nothing has been learnt yet: all are zero." : null,
    draw: thetaChart({ names: drawn.map(([key]) => key), values: drawn.map(([, number_]) => number_) }),
  });
  details($("details", section), () => table(
    "All coordinates, the largest first", [{ head: "Coordinate" }, { head: "Value", ...COUNT }],
    largest.map(([key, number_]) => [key, number(number_)]),
  ));
}

/* --- decisions, settings --- */

function showRecent(stream) {
  const { pending, statistics, config } = stream;
  const rows = statistics.recent.filter((row) => only === "all" || row.state === only).reverse();
  const among = statistics.recent.filter((row) => row.state === "pending").length;
  const after = config.missing === null ? "are forgotten" : `count as reward ${words.given(config.missing)}`;
  const limit = config.wait === null ? "" : ` After ${words.wait(config.wait)} they ${after}.`;
  const section = $("#recent");
  say($(".reading", section), pending === 0 ? "No decision waits for its reward."
    : `${plural(pending, "decision waits", "decisions wait")} for a reward, ${count(among)} of these ${
      count(statistics.recent.length)}.${limit}`);
  for (const button of section.querySelectorAll("[data-only]")) {
    button.setAttribute("aria-pressed", String(button.dataset.only === only));
  }
  $("table", section).hidden = rows.length === 0;
  $(".blank", section).hidden = rows.length > 0;
  say($(".blank", section), "None of the recent decisions is pending.");
  $("tbody", section).replaceChildren(...rows.slice(0, unfolded ? rows.length : ROWS).map((row) => element(
    "tr", { className: row.state },
    element("td", {}, moment(row.time, "age")),
    element("td", { className: "arm", title: String(row.arm) }, String(row.arm)),
    element("td", { className: "number" }, number(row.prediction)),
    element("td", { className: "number" }, row.state === "rewarded" ? number(row.reward) : row.state),
    element("td", { className: "identity" }, element("code", {}, row.decision)),
  )));
  const more = $("#more");
  more.hidden = rows.length <= ROWS;
  more.setAttribute("aria-expanded", String(unfolded));
  say(more, unfolded ? `Show the latest ${ROWS}` : `Show all ${rows.length}`);
}

$("#recent-choice").addEventListener("click", ({ target }) => {
  if (target.dataset.only === undefined) return;
  only = target.dataset.only;
  showRecent(shown.stream);
});
$("#more").addEventListener("click", () => {
  unfolded = !unfolded;
  showRecent(shown.stream);
});

function showSettings({ config }) {
  const given = Object.entries(config).filter(([, value]) => value !== null);
  details($("#settings"), () => table(
    "Settings of this stream; what is not listed was not set", [{ head: "Setting" }, { head: "Value" }],
    given.map(([name, value]) => [name, typeof value === "string" ? value : JSON.stringify(value)]),
  ));
}
