/** The form that creates a stream. */

/** @import { ExampleRequest, StreamInfo } from "./types.js" */

import { ProblemError, describeError, send } from "./api.js";
import { $, setText } from "./dom.js";
import { showCommand } from "./examples.js";

/** @type {HTMLFormElement} */
const form = $("#new-stream form");
const NUMBERS = ["dim", "default_reward"];

/** @returns {ExampleRequest} the fields that are filled in */
function readForm() {
  const fields = [...new FormData(form)]
    .map(([name, value]) => [name, String(value).trim()])
    .filter(([, value]) => value !== "")
    .map(([name, value]) => [name, NUMBERS.includes(name) ? Number(value) : value]);
  return { method: "POST", path: "v1/streams", body: Object.fromEntries(fields) };
}

export const showForm = () => showCommand($("#create-command"), readForm(), false);

/** @param {unknown} error */
function showProblem(error) {
  setText($("#new-stream .problem"), describeError(error));
  const names = error instanceof ProblemError ? error.errors.map(({ pointer }) => pointer.split("/")[1]) : [];
  for (const input of form.querySelectorAll("input")) {
    input.setAttribute("aria-invalid", String(names.includes(input.name)));
  }
  /** @type {HTMLInputElement | null} */ (form.querySelector("input[aria-invalid=true]"))?.focus();
}

/** @param {(name: string) => void} onCreated */
export function startForm(onCreated) {
  form.addEventListener("input", showForm);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      const { name } = /** @type {StreamInfo} */ (await send(readForm()));
      showProblem("");
      onCreated(name);
    } catch (error) {
      showProblem(error);
    }
  });
}
