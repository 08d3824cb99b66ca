/** Requests that work, to start a stream: shown as commands that can be copied or sent from the page. */

/** @import { ExampleRequest, Features, Field, StreamInfo } from "./types.js" */

import { decisionPath, describeError, send, streamPath, token } from "./api.js";
import { element, setText } from "./dom.js";

const NOTICE_TIME = 2000; // milliseconds

/**
 * A decision that this stream can make: with its own features, or with vectors of its dimension.
 *
 * @param {StreamInfo} info
 * @returns {ExampleRequest}
 */
export function decideExample({ name, dim, settings }) {
  const path = `${streamPath(name)}/decisions`;
  if (settings.features) return { method: "POST", path, body: featureExample(settings.features) };
  const value = 0.5 * (settings.L ?? 1);
  const vector = (/** @type {number} */ place) => Array.from({ length: dim }, (_, i) => (i === place ? value : 0));
  return { method: "POST", path, body: { arms: { red: vector(0), blue: vector(dim - 1) } } };
}

/** @param {Features} features */
function featureExample({ shared, by_arm: byArm, per_arm: perArm, arms: declared }) {
  const context = { ...exampleValues(shared), ...exampleValues(byArm) };
  const names = declared?.length ? declared.slice(0, 2) : ["red", "blue"];
  const fields = exampleValues(perArm);
  const arms = Object.keys(fields).length > 0 ? Object.fromEntries(names.map((name) => [name, fields])) : names;
  return Object.keys(context).length > 0 ? { context, arms } : { arms };
}

/** @param {Record<string, Field>} [fields] */
const exampleValues = (fields = {}) =>
  Object.fromEntries(Object.entries(fields).map(([name, { values, low }]) => [name, values ? values[0] : (low ?? 1)]));

/**
 * @param {StreamInfo} info
 * @param {string} id
 * @returns {ExampleRequest}
 */
export const rewardExample = ({ name }, id) => ({
  method: "PUT",
  path: `${decisionPath(name, id)}/reward`,
  body: { value: 1 },
});

/** @param {string} text */
const quote = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/** @param {ExampleRequest} example */
export function formatCurl({ method, path, body }) {
  const verb = method === "POST" ? "" : `-X ${method} `;
  const access = token.get() === null ? "" : ' -H "Authorization: Bearer $TOKEN"';
  const url = new URL(path, document.baseURI).href;
  return `curl ${verb}${quote(url)}${access} -H 'Content-Type: application/json' -d ${quote(JSON.stringify(body))}`;
}

/**
 * Show a request as a command with buttons to copy it and, unless a form of its own sends it, to send it.
 *
 * @param {HTMLElement} place
 * @param {ExampleRequest} example
 * @param {boolean} [canSend]
 */
export function showCommand(place, example, canSend = true) {
  const text = formatCurl(example);
  if (place.dataset.text === text) return;
  place.dataset.text = text;
  const code = element("code", {}, text);
  const pre = element("pre", { tabIndex: 0 }, code);
  pre.setAttribute("aria-label", "Command");
  const notice = element("span", { role: "status", className: "note" });
  const buttons = element(
    "p",
    { className: "buttons" },
    makeButton("Copy", async () => {
      try {
        await navigator.clipboard.writeText(text);
        setText(notice, "Copied");
      } catch {
        getSelection()?.selectAllChildren(code);
        setText(notice, "Selected");
      }
      setTimeout(() => setText(notice, ""), NOTICE_TIME);
    }),
  );
  if (canSend) {
    buttons.append(
      makeButton("Send", async () => {
        setText(notice, "Sending");
        await send(example).then(
          () => setText(notice, "Done"),
          (error) => setText(notice, describeError(error)),
        );
      }),
    );
  }
  buttons.append(notice);
  place.replaceChildren(pre, buttons);
}

/**
 * @param {string} label
 * @param {() => Promise<void>} onClick
 */
function makeButton(label, onClick) {
  const button = element("button", { type: "button" }, label);
  button.addEventListener("click", async () => {
    button.disabled = true;
    await onClick();
    button.disabled = false;
  });
  return button;
}
