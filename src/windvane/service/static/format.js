/** Numbers and times as people read them. Times are seconds since 1970, shown in the reader's time zone. */

/** @import { Timestamp } from "./types.js" */

const integers = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const upToThree = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const exactlyThree = new Intl.NumberFormat("en", { minimumSignificantDigits: 3, maximumSignificantDigits: 3 });
const timeOnly = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
const dateAndTime = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
const fullTime = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "long" });
const NBSP = "\u00a0";
const MINUS = "−";

/** @param {number} value */
export const formatCount = (value) => (value < 1e7 ? integers : compact).format(value);

/**
 * A measured value: three digits.
 *
 * @param {number | null} value
 */
export function formatNumber(value) {
  if (value === null) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e9)) return value.toExponential(1).replaceAll("-", MINUS);
  return (size >= 1000 || Number.isInteger(value) ? integers : exactlyThree).format(value).replace("-", MINUS);
}

/**
 * A setting: no digits are added.
 *
 * @param {number} value
 */
export const formatSetting = (value) => upToThree.format(value).replace("-", MINUS);

/** @param {number} share */
export function formatPercent(share) {
  if (share > 0 && share < 0.001) return `<${NBSP}0.1${NBSP}%`;
  if (share < 1 && share > 0.999) return `>${NBSP}99.9${NBSP}%`;
  return `${(100 * share).toFixed(share === 0 || share === 1 ? 0 : 1)}${NBSP}%`;
}

/**
 * @param {number} value
 * @param {string} singular
 * @param {string} plural
 */
export const countOf = (value, singular, plural = `${singular}s`) =>
  `${formatCount(value)} ${value === 1 ? singular : plural}`;

/**
 * @param {string} text
 * @param {number} length
 */
export const shorten = (text, length) => (text.length > length ? `${text.slice(0, length - 1).trimEnd()}…` : text);

/* --- times --- */

/** @type {[string, number][]} */
const UNITS = [
  ["day", 86400],
  ["h", 3600],
  ["min", 60],
  ["s", 1],
];

/** @param {Timestamp} timestamp */
export const parseTime = (timestamp) => Date.parse(timestamp) / 1000;

/**
 * @param {string} text
 * @param {string} unit
 */
const withUnit = (text, unit) => `${text} ${unit}${unit === "day" && text !== "1" ? "s" : ""}`;

/** @param {number} seconds */
const largestUnit = (seconds) => UNITS.find(([, size]) => seconds >= size) ?? UNITS[UNITS.length - 1];

/** @param {number} seconds */
export function formatDuration(seconds) {
  const [unit, size] = largestUnit(seconds);
  const value = seconds / size;
  const text = value >= 10 || unit === "s" ? integers.format(value) : upToThree.format(Math.round(10 * value) / 10);
  return withUnit(text, unit);
}

/** @param {number} time */
export function formatAge(time, now = Date.now() / 1000) {
  if (now - time < 2) return "now";
  const [unit, size] = largestUnit(now - time);
  return withUnit(integers.format(Math.floor((now - time) / size)), unit);
}

/** @param {number} time */
export function formatAgo(time) {
  const age = formatAge(time);
  return age === "now" ? "just now" : `${age} ago`;
}

/** @param {number} time */
export function formatClock(time) {
  const date = new Date(1000 * time);
  return (date.toDateString() === new Date().toDateString() ? timeOnly : dateAndTime).format(date);
}

/** @param {number} time */
export const formatFullTime = (time) => fullTime.format(new Date(1000 * time));
