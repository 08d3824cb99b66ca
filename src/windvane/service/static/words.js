/* Numbers, times and findings as people read them. */

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const digits = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const three = new Intl.NumberFormat("en", { minimumSignificantDigits: 3, maximumSignificantDigits: 3 });
const sameDay = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
const otherDay = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
const full = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "long" });
const SPACE = "\u00a0";

export const count = (value) => (value < 1e7 ? whole : compact).format(value);

/* Something measured: three digits. */
export function number(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e9)) return value.toExponential(1).replaceAll("-", "−");
  return (size >= 1000 || Number.isInteger(value) ? whole : three).format(value).replace("-", "−");
}

/* Something given: as it was given. */
export const given = (value) => digits.format(value).replace("-", "−");

export function percent(share) {
  if (share > 0 && share < 0.001) return `<${SPACE}0.1${SPACE}%`;
  if (share < 1 && share > 0.999) return `>${SPACE}99.9${SPACE}%`;
  return `${(100 * share).toFixed(share === 0 || share === 1 ? 0 : 1)}${SPACE}%`;
}

export const plural = (value, one, many = `${one}s`) => `${count(value)} ${value === 1 ? one : many}`;

export const short = (text, most) => (text.length > most ? `${text.slice(0, most - 1).trimEnd()}…` : text);

/* --- times: seconds since 1970, shown in the reader's zone --- */

const UNITS = [["day", 86400], ["h", 3600], ["min", 60], ["s", 1]];

export function span(seconds) {
  for (const [unit, size] of UNITS) {
    if (seconds >= size || unit === "s") {
      const value = seconds / size;
      const shown = value >= 10 || unit === "s" ? whole.format(value) : digits.format(Math.round(10 * value) / 10);
      return `${shown} ${unit}${unit === "day" && shown !== "1" ? "s" : ""}`;
    }
  }
}

export function age(time, now = Date.now() / 1000) {
  const seconds = now - time;
  if (seconds < 2) return "now";
  const [unit, size] = UNITS.find(([, size]) => seconds >= size);
  const value = Math.floor(seconds / size);
  return `${whole.format(value)} ${unit}${unit === "day" && value > 1 ? "s" : ""}`;
}

export function ago(time) {
  const told = age(time);
  return told === "now" ? "just now" : `${told} ago`;
}

export function clock(time) {
  const date = new Date(1000 * time);
  return (date.toDateString() === new Date().toDateString() ? sameDay : otherDay).format(date);
}

export const exactly = (time) => full.format(new Date(1000 * time));

/* As a chart's axis of dates wants it: the reader's clock, without a zone. */
export function local(time) {
  const date = new Date(1000 * time);
  return new Date(date.getTime() - 60000 * date.getTimezoneOffset()).toISOString().slice(0, 23);
}

/* --- findings --- */

export function memory(value, unit) {
  if (value === null) return "everything so far";
  return unit === "seconds" ? `about the last ${span(value)}` : `about the last ${count(Math.round(value))} decisions`;
}

export function memoryShort(value, unit) {
  if (value === null) return "everything";
  return unit === "seconds" ? span(value) : plural(Math.round(value), "decision");
}

/* The same as a figure and what it counts. */
export function memoryParts(value, unit) {
  if (value === null) return ["all", ["nothing is forgotten"]];
  return unit === "seconds" ? [span(value), ["that count"]] : [count(Math.round(value)), ["decisions that count"]];
}

/* The verdict on drift: a few words, and a sentence. */
export function drift({ drift, memory: lasts, memory_unit: unit, rewards, decisions }) {
  const back = memory(drift !== null && lasts >= decisions ? null : lasts, unit);
  if (drift === null) {
    const why = lasts === null
      ? "This stream never forgets: it goes by everything so far, and does not look for change."
      : `This stream was told how fast to forget: it goes by ${back}, whether or not anything changes.`;
    return { kind: "fixed", short: "not estimated", long: why };
  }
  if (drift.verdict === "drift") {
    return {
      kind: "drift", short: "changing",
      long: `What works is changing. Older rewards mislead, so decisions go by ${back}.`,
    };
  }
  if (drift.verdict === "no drift seen") {
    return {
      kind: "steady", short: "no change seen",
      long: `What works seems steady. Decisions go by ${back}; a change slower than the data can show is possible.`,
    };
  }
  const why = rewards ? "The rewards so far fit a steady world as well as a changing one." : "No reward has come yet.";
  return { kind: "unknown", short: "too early to tell", long: `Too early to tell whether what works is changing. ${why}` };
}

/* A log likelihood ratio as odds. */
export function evidence(nats) {
  const ratio = Math.exp(Math.min(Math.abs(nats), 50));
  const shown = ratio >= 1e6 ? "more than a million" : number(ratio < 10 ? Number(ratio.toPrecision(2)) : Math.round(ratio));
  if (ratio < 1.05) return "neither way";
  return nats > 0 ? `${shown} to 1 for change` : `${shown} to 1 against change`;
}

/* "2d", or a number of decisions. */
export const wait = (given) => (typeof given === "number" ? plural(given, "further decision") : given);
