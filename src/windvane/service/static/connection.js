/* Asking the server: with the token if there is one, and following a stream for as long as it is wanted. */

const KEY = "windvane.token";
const SILENCE = 25000; // milliseconds; the server says something every ten seconds
const PAUSES = [500, 1000, 2000, 4000]; // between attempts; the last one again and again

export class Refused extends Error {
  constructor(status, code, message) {
    super(message);
    Object.assign(this, { status, code });
  }
}

export const token = {
  get: () => sessionStorage.getItem(KEY),
  set: (value) => sessionStorage.setItem(KEY, value),
  forget: () => sessionStorage.removeItem(KEY),
};

async function ask(path, signal) {
  const secret = token.get();
  const headers = secret ? { authorization: `Bearer ${secret}` } : {};
  const response = await fetch(new URL(path, document.baseURI), { headers, signal, cache: "no-store" });
  if (response.ok) return response;
  const told = await response.json().catch(() => null);
  throw new Refused(response.status, told?.error?.code ?? "http", told?.error?.message ?? response.statusText);
}

export const get = async (path, signal) => (await ask(path, signal)).json();

/* Calls work(signal, worked) over and over: it may last, and it calls worked() when things are well. When it
   fails, failed(error) is told, which returns false to give up. */
export function repeat(work, failed) {
  const stopped = new AbortController();
  let wake = () => {};
  (async () => {
    for (let attempt = 0; !stopped.signal.aborted; attempt += 1) {
      try {
        await work(stopped.signal, () => { attempt = -1; });
      } catch (error) {
        if (stopped.signal.aborted || failed(error) === false) return;
      }
      const pause = PAUSES[Math.min(Math.max(attempt, 0), PAUSES.length - 1)];
      await new Promise((go) => { wake = go; setTimeout(go, pause); });
    }
  })();
  return { stop: () => { stopped.abort(); wake(); }, hurry: () => wake() };
}

/* Follow a stream: heard() whenever the server says anything, state(document) for every event. (An EventSource could not
   send the token.) */
export function follow(name, heard, state, failed) {
  return repeat(async (signal, worked) => {
    const quiet = new AbortController();
    const either = AbortSignal.any([signal, quiet.signal]);
    let timer;
    const wait = () => {
      clearTimeout(timer);
      timer = setTimeout(() => quiet.abort(new Error("the server has gone quiet")), SILENCE);
    };
    try {
      wait();
      const response = await ask(`v1/streams/${encodeURIComponent(name)}/live`, either);
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { done, value } = await reader.read();
        if (done) throw new Error("the server ended the connection");
        wait();
        worked();
        heard();
        const parts = (rest + value).split("\n\n");
        rest = parts.pop();
        for (const part of parts) {
          const data = part.split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6));
          if (data.length) state(JSON.parse(data.join("\n")));
        }
      }
    } finally {
      clearTimeout(timer);
    }
  }, failed);
}
