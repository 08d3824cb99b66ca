/** Requests to the server, with the access token if there is one, and with retries. */

/** @import { ExampleRequest, LiveEvent, Problem, StreamList } from "./types.js" */

const TOKEN_KEY = "windvane.token";
const SILENCE = 25000; // milliseconds; the server sends data every ten seconds
const PAUSES = [500, 1000, 2000, 4000]; // milliseconds between attempts; the last one repeats
const PAGE_SIZE = 100;

/** The server rejected a request: a problem document (RFC 9457). */
export class ProblemError extends Error {
  /** @param {Problem} problem */
  constructor(problem) {
    super(problem.detail);
    this.status = problem.status;
    this.code = problem.type.replace(/^.*:/, "");
    this.errors = problem.errors ?? [];
  }
}

export const token = {
  get: () => sessionStorage.getItem(TOKEN_KEY),
  set: (/** @type {string} */ value) => sessionStorage.setItem(TOKEN_KEY, value),
  remove: () => sessionStorage.removeItem(TOKEN_KEY),
};

/**
 * @param {string} path
 * @param {RequestInit} [options]
 * @returns {Promise<Response>}
 */
async function request(path, options = {}) {
  const headers = new Headers(options.headers);
  const secret = token.get();
  if (secret !== null) headers.set("authorization", `Bearer ${secret}`);
  const response = await fetch(new URL(path, document.baseURI), { ...options, headers, cache: "no-store" });
  if (response.ok) return response;
  /** @type {Partial<Problem> | null} */
  const problem = await response.json().catch(() => null);
  const { status, statusText } = response;
  throw new ProblemError({
    type: "urn:windvane:problem:http",
    title: statusText,
    detail: `${status} ${statusText}`,
    ...problem,
    status,
  });
}

/** @param {...string} parts */
export const streamPath = (...parts) => ["v1/streams", ...parts.map(encodeURIComponent)].join("/");

/**
 * @template T
 * @param {string} path
 * @param {AbortSignal} [signal]
 * @returns {Promise<T>}
 */
export const get = async (path, signal) => parseJson(await (await request(path, { signal })).text());

/**
 * Parse JSON; an integer too large for a number, such as a seed, becomes a string if the browser supports it.
 *
 * @param {string} text
 */
function parseJson(text) {
  /** @type {(key: string, value: unknown, context?: { source?: string }) => unknown} */
  const revive = (_key, value, context) =>
    Number.isInteger(value) && !Number.isSafeInteger(value) ? (context?.source ?? value) : value;
  return JSON.parse(text, revive);
}

/**
 * @param {ExampleRequest} example
 * @returns {Promise<unknown>}
 */
export async function send({ method, path, body }) {
  const headers = { "content-type": "application/json" };
  const text = await (await request(path, { method, headers, body: JSON.stringify(body) })).text();
  return text === "" ? null : JSON.parse(text);
}

/**
 * Read the first pages of the list of streams.
 *
 * @param {number} pages
 * @param {AbortSignal} signal
 * @returns {Promise<StreamList>}
 */
export async function listStreams(pages, signal) {
  /** @type {StreamList} */
  const all = { streams: [], next: null, unavailable: [] };
  for (let page = 0; page < pages && (page === 0 || all.next !== null); page += 1) {
    const after = all.next === null ? "" : `&after=${encodeURIComponent(all.next)}`;
    /** @type {StreamList} */
    const list = await get(`v1/streams?limit=${PAGE_SIZE}${after}`, signal);
    all.streams.push(...list.streams);
    all.next = list.next;
    all.unavailable = list.unavailable;
  }
  return all;
}

/** @typedef {{ stop: () => void, retryNow: () => void }} Repetition */

/**
 * Call `work` repeatedly. It calls `onSuccess` when the server has answered; `onError` returns false to give up.
 *
 * @param {(signal: AbortSignal, onSuccess: () => void) => Promise<void>} work
 * @param {(error: unknown) => boolean} onError
 * @returns {Repetition}
 */
export function repeat(work, onError) {
  const controller = new AbortController();
  const { signal } = controller;
  let wake = () => {};
  (async () => {
    for (let attempt = 0; !signal.aborted; attempt += 1) {
      try {
        await work(signal, () => {
          attempt = -1;
        });
      } catch (error) {
        if (signal.aborted || !onError(error)) return;
      }
      const pause = PAUSES[Math.min(Math.max(attempt, 0), PAUSES.length - 1)];
      await new Promise((resolve) => {
        wake = () => resolve(undefined);
        setTimeout(wake, pause);
      });
    }
  })();
  return {
    stop: () => {
      controller.abort();
      wake();
    },
    retryNow: () => wake(),
  };
}

/**
 * Follow a stream over server-sent events. (EventSource cannot send the token.)
 *
 * @param {string} name
 * @param {() => void} onContact called whenever the server sends anything
 * @param {(event: LiveEvent) => void} onInfo
 * @param {(error: unknown) => boolean} onError
 * @returns {Repetition}
 */
export function followStream(name, onContact, onInfo, onError) {
  return repeat(async (signal, onSuccess) => {
    const silence = new AbortController();
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    let timer;
    const restartTimer = () => {
      clearTimeout(timer);
      timer = setTimeout(() => silence.abort(new Error("no message from the server")), SILENCE);
    };
    try {
      restartTimer();
      const either = AbortSignal.any([signal, silence.signal]);
      const response = await request(`${streamPath(name)}/live`, { signal: either });
      for await (const { event, data } of readEvents(response, () => {
        restartTimer();
        onSuccess();
        onContact();
      })) {
        if (event === "info") onInfo(parseJson(data));
      }
      throw new Error("the server closed the connection");
    } finally {
      clearTimeout(timer);
    }
  }, onError);
}

/**
 * Parse server-sent events; comments have no data and are skipped.
 *
 * @param {Response} response
 * @param {() => void} onChunk
 */
async function* readEvents(response, onChunk) {
  const body = /** @type {ReadableStream<Uint8Array<ArrayBuffer>>} */ (response.body);
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    onChunk();
    const blocks = (rest + value).replaceAll("\r\n", "\n").split("\n\n");
    rest = /** @type {string} */ (blocks.pop());
    for (const block of blocks) {
      const lines = block.split("\n").map((line) => /** @type {const} */ ([line, line.indexOf(":")]));
      const field = (/** @type {string} */ name) =>
        lines
          .filter(([line, colon]) => line.slice(0, colon) === name)
          .map(([line, colon]) => line.slice(colon + 1).trimStart());
      const data = field("data");
      if (data.length > 0) yield { event: field("event")[0] ?? "message", data: data.join("\n") };
    }
  }
}

/**
 * @param {string} name
 * @param {string} id
 */
export const decisionPath = (name, id) => `${streamPath(name)}/decisions/${encodeURIComponent(id)}`;

/** @param {unknown} error */
export const describeError = (error) => (error instanceof Error ? error.message : String(error));
