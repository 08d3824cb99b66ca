/** What can be done with a whole stream: archive it, bring it back, delete it; and how long its events are kept. */

/** @import { StreamInfo } from "./types.js" */

import { describeError, send, streamPath } from "./api.js";
import { $, setText, setTimeText } from "./dom.js";
import { countOf } from "./format.js";

/** @type {HTMLDialogElement} */
const dialog = $("#deletion");
/** @type {HTMLInputElement} */
const typed = $("#deletion-name");
/** @type {HTMLButtonElement} */
const archiveButton = $("#archive");
/** @type {HTMLButtonElement} */
const deleteButton = $("#deletion button.danger");

/** The stream that is shown. */
const shown = { name: "", isArchived: false };

/** @param {StreamInfo} info */
export function showManagement({ name, archived, retention, removed }) {
  if (name !== shown.name) {
    setText($("#manage .problem"), "");
    dialog.close();
  }
  Object.assign(shown, { name, isArchived: archived !== null });
  setText(archiveButton, shown.isArchived ? "Unarchive" : "Archive");
  setText($("#kept"), retention === null ? "Events are kept forever." : `Events are kept for ${retention}.`);
  $("#removed").hidden = removed === null;
  if (removed !== null) {
    setTimeText($("#removed"), `${countOf(removed.number, "event")} removed, the last of `, removed.last, "both", ".");
  }
}

export const closeDeletion = () => dialog.close();

/** @param {() => Promise<unknown>} work */
async function attempt(work) {
  setText($("#manage .problem"), "");
  try {
    await work();
    return true;
  } catch (error) {
    setText($("#manage .problem"), describeError(error));
    return false;
  }
}

/** @param {"POST" | "DELETE"} method @param {string[]} parts */
const request = (method, ...parts) => send({ method, path: streamPath(shown.name, ...parts), body: {} });

/** @param {() => void} onDeleted */
export function startManagement(onDeleted) {
  archiveButton.addEventListener("click", async () => {
    archiveButton.disabled = true;
    await attempt(() => request("POST", shown.isArchived ? "unarchive" : "archive"));
    archiveButton.disabled = false;
  });
  $("#delete").addEventListener("click", () => {
    setText($("#deletion code"), shown.name);
    typed.value = "";
    deleteButton.disabled = true;
    dialog.showModal();
    typed.focus();
  });
  typed.addEventListener("input", () => {
    deleteButton.disabled = typed.value !== shown.name;
  });
  $("#deletion form.confirm").addEventListener("submit", async (event) => {
    event.preventDefault();
    if (deleteButton.disabled) return;
    deleteButton.disabled = true;
    const isDone = await attempt(() => request("DELETE"));
    dialog.close();
    if (isDone) onDeleted();
  });
}
