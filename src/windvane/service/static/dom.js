/* Elements. Whatever comes from outside becomes text, never markup. */

import { age, ago, clock, exactly } from "./words.js";

export const $ = (selector, root = document) => root.querySelector(selector);

export function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

export function say(place, text) {
  if (place.textContent !== text) place.textContent = text; // what did not change is not touched: it may be selected
}

/* A time as people say it (age, ago, both: with the clock's); brought up to date by refreshTimes. */
export function moment(time, style = "ago") {
  const made = element("time", { dateTime: new Date(1000 * time).toISOString(), title: exactly(time) });
  made.dataset.time = time;
  made.dataset.style = style;
  tell(made);
  return made;
}

function tell(place) {
  const time = Number(place.dataset.time);
  say(place, { age, ago, both: () => `${clock(time)} (${ago(time)})` }[place.dataset.style](time));
}

export const refreshTimes = () => document.querySelectorAll("time[data-time]").forEach(tell);

/* A table in a part of its own, which scrolls if it must. columns: { head, number } */
export function table(caption, columns, rows) {
  const cell = (tag, value, { number }) => {
    const made = element(tag, { className: number ? "number" : "" }, value);
    if (tag === "th") made.scope = "col";
    return made;
  };
  const head = element("thead", {}, element("tr", {}, ...columns.map((column) => cell("th", column.head, column))));
  const body = element("tbody", {}, ...rows.map((row) =>
    element("tr", {}, ...row.map((value, i) => cell("td", value, columns[i])))));
  return element("table", {}, element("caption", {}, caption), head, body);
}

/* A command line to copy. */
export function command(place, text) {
  if (place.dataset.text === text) return;
  place.dataset.text = text;
  const copy = element("button", { type: "button" }, "Copy");
  copy.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      copy.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(code);
      copy.textContent = "Selected";
    }
    setTimeout(() => { copy.textContent = "Copy"; }, 2000);
  });
  const code = element("code", {}, text);
  const pre = element("pre", { tabIndex: 0 }, code);
  pre.setAttribute("aria-label", "Command");
  place.replaceChildren(pre, copy);
}
