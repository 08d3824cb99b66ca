/** Elements. External text becomes text, never markup, and selected text is not changed. */

/** @import { Timestamp } from "./types.js" */

import { formatAge, formatAgo, formatClock, formatFullTime, parseTime } from "./format.js";

/**
 * The element of a selector that is in the page's markup.
 *
 * @template {HTMLElement} [T=HTMLElement]
 * @param {string} selector
 * @param {ParentNode} [root]
 * @returns {T}
 */
export function $(selector, root = document) {
  const match = root.querySelector(selector);
  if (match === null) throw new Error(`no element ${selector}`);
  return /** @type {T} */ (match);
}

/**
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Partial<HTMLElementTagNameMap[K]>} [properties]
 * @param {...(Node | string)} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function element(tag, properties = {}, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
}

/** @param {Node} node */
export function isSelected(node) {
  const selection = getSelection();
  return selection !== null && !selection.isCollapsed && selection.containsNode(node, true);
}

/** @type {Map<HTMLElement, string>} Text that waits for the end of a selection. */
const postponed = new Map();

/**
 * Change the text of an element, unless it is the same; if it is selected, wait until it is not.
 *
 * @param {HTMLElement} node
 * @param {string} text
 */
export function setText(node, text) {
  postponed.delete(node);
  if (node.textContent === text) return;
  if (isSelected(node)) postponed.set(node, text);
  else node.textContent = text;
}

/**
 * Make the children of `parent` those of `items`, in order. A child is created once for each key and then updated;
 * children that stay are not moved, and a child that is selected is not removed.
 *
 * @template T
 * @template {HTMLElement} E
 * @param {Element} parent
 * @param {T[]} items
 * @param {{ key: (item: T) => string, create: (item: T) => E, update?: (child: E, item: T) => void }} options
 */
export function syncChildren(parent, items, { key, create, update }) {
  const children = /** @type {E[]} */ ([...parent.children]);
  const byKey = new Map(children.map((child) => [child.dataset.key, child]));
  const wanted = new Set(items.map(key));
  for (const child of children) {
    if (!wanted.has(child.dataset.key ?? "") && !isSelected(child)) child.remove();
  }
  let cursor = parent.firstElementChild;
  for (const item of items) {
    let child = byKey.get(key(item));
    if (child === undefined) {
      child = create(item);
      child.dataset.key = key(item);
    }
    if (child === cursor) cursor = cursor.nextElementSibling;
    else parent.insertBefore(child, cursor);
    update?.(child, item);
  }
}

/* --- times --- */

/** @type {Record<string, (time: number) => string>} */
const TIME_STYLES = {
  age: formatAge,
  ago: formatAgo,
  clock: formatClock,
  both: (time) => `${formatClock(time)} (${formatAgo(time)})`,
};

/**
 * A time that keeps itself up to date.
 *
 * @param {Timestamp} timestamp
 * @param {"age" | "ago" | "clock" | "both"} style
 */
export function timeElement(timestamp, style = "ago") {
  const time = parseTime(timestamp);
  const node = element("time", { dateTime: timestamp, title: formatFullTime(time) }, TIME_STYLES[style](time));
  node.dataset.style = style;
  return node;
}

/** Bring times up to date, and texts that waited for the end of a selection. */
export function refreshTexts() {
  for (const [node, text] of [...postponed]) setText(node, text);
  for (const node of document.querySelectorAll("time")) {
    setText(node, TIME_STYLES[node.dataset.style ?? "ago"](parseTime(node.dateTime)));
  }
}

/**
 * Put a text with a time into an element, unless it is there already.
 *
 * @param {HTMLElement} node
 * @param {string} before
 * @param {Timestamp | null} timestamp
 * @param {"ago" | "both"} [style]
 * @param {string} [after]
 */
export function setTimeText(node, before, timestamp, style = "ago", after = "") {
  const key = `${before}|${timestamp}|${after}`;
  if (node.dataset.text === key || isSelected(node)) return;
  node.dataset.text = key;
  node.replaceChildren(before, ...(timestamp === null ? [] : [timeElement(timestamp, style)]), after);
}

/* --- tables --- */

/**
 * Fill a table. Rows are kept by their key, so that a selection and the place of scrolling survive.
 *
 * @param {HTMLTableElement} table
 * @param {string} caption
 * @param {{ head: string, isNumber?: boolean }[]} columns
 * @param {{ key: string, cells: string[] }[]} rows
 */
export function fillTable(table, caption, columns, rows) {
  const className = (/** @type {number} */ i) => (columns[i].isNumber ? "number" : "");
  setText(table.caption ?? table.createCaption(), caption);
  const head = table.tHead ?? table.createTHead().appendChild(element("tr")).parentElement;
  syncChildren(
    $("tr", /** @type {HTMLElement} */ (head)),
    columns.map((column, i) => ({ ...column, i })),
    {
      key: ({ i }) => String(i),
      create: ({ i }) => element("th", { scope: "col", className: className(i) }),
      update: (cell, column) => setText(cell, column.head),
    },
  );
  syncChildren(table.tBodies[0] ?? table.createTBody(), rows, {
    key: (row) => row.key,
    create: () => element("tr"),
    update: (line, { cells }) =>
      syncChildren(
        line,
        cells.map((text, i) => ({ text, i })),
        {
          key: ({ i }) => String(i),
          create: ({ i }) => element("td", { className: className(i) }),
          update: (cell, { text }) => setText(cell, text),
        },
      ),
  });
}

/** @type {WeakMap<HTMLDetailsElement, (table: HTMLTableElement) => void>} */
const fillers = new WeakMap();

/**
 * A table inside a details element, filled when that is opened and kept up to date while it is open.
 *
 * @param {HTMLDetailsElement} details
 * @param {(table: HTMLTableElement) => void} fill
 */
export function setDetails(details, fill) {
  fillers.set(details, fill);
  if (details.open) openDetails(details);
}

/** @param {HTMLDetailsElement} details */
function openDetails(details) {
  const fill = fillers.get(details);
  if (fill === undefined) return;
  let table = details.querySelector("table");
  if (table === null) {
    table = element("table");
    const region = element("div", { className: "scroll", tabIndex: 0, role: "region" }, table);
    region.setAttribute("aria-label", $("summary", details).textContent ?? "");
    details.append(region);
  }
  fill(table);
}

document.addEventListener(
  "toggle",
  ({ target }) => {
    if (target instanceof HTMLDetailsElement && target.open) openDetails(target);
  },
  true,
);
