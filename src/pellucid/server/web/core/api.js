// What the pages ask of the server: every request in one place, with the key where one is given.

const KEY = "pellucid.key";
const VIEWER = "pellucid.viewer";
const OWN = "pellucid.own";
const OWN_KEPT = 64;

const AGAIN_S = 2; // where a busy server does not say when
const LONGEST_S = 30;

/** A refusal of the server, in its own words. */
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** 16 random hexadecimal digits for each 8 bytes. */
export function random(bytes = 8) {
  return [...crypto.getRandomValues(new Uint8Array(bytes))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/**
 * Requests to the server that sent the pages. In this tab's session storage stay the key, the secret by which
 * the server knows whose texts are this viewer's, and the ids of the requests that were made with it.
 */
export class Api {
  #listeners = new Set();
  #busy = new Set();
  /** The replica whose records are asked for; null: the one that the server shows. */
  replica = null;
  #waiting = 0;
  /** Ends what is asked when the page is left; one that is come back to asks anew. */
  #left = new AbortController();

  constructor() {
    globalThis.addEventListener?.("pagehide", () => this.#left.abort());
    globalThis.addEventListener?.("pageshow", (event) => event.persisted && (this.#left = new AbortController()));
  }

  get key() {
    return sessionStorage.getItem(KEY) ?? "";
  }

  set key(value) {
    if (value) sessionStorage.setItem(KEY, value);
    else sessionStorage.removeItem(KEY);
    for (const listener of this.#listeners) listener();
  }

  get viewer() {
    if (!sessionStorage.getItem(VIEWER)) sessionStorage.setItem(VIEWER, random(16));
    return sessionStorage.getItem(VIEWER);
  }

  get #own() {
    return JSON.parse(sessionStorage.getItem(OWN) ?? "[]");
  }

  /** An id for a request of this viewer's own. */
  newId() {
    const id = `page-${random()}`;
    sessionStorage.setItem(OWN, JSON.stringify([...this.#own, id].slice(-OWN_KEPT)));
    return id;
  }

  /** Whether this viewer made the request: the engine's id is ours with a number after it. */
  owns(id) {
    return this.#own.includes(id.replace(/\.\d+$/, ""));
  }

  onKey(listener) {
    this.#listeners.add(listener);
  }

  /** What waits for a busy server: `listener({words, again})`, seconds until it is asked again; null once nothing does. */
  onBusy(listener) {
    this.#busy.add(listener);
  }

  #tellBusy(told) {
    for (const listener of this.#busy) listener(told);
  }

  /**
   * A response that is known to be good. A server that is busy is asked again when it says so, and `waits(words, seconds)` is told,
   * unless `waits` is false. Throws `Refused`, or what fetch throws.
   */
  async open(path, { body, headers, signal, waits } = {}) {
    const leaving = signal ? AbortSignal.any([signal, this.#left.signal]) : this.#left.signal;
    for (;;) {
      const response = await this.#fetch(path, body, headers, leaving);
      const again = whenAgain(response);
      if (response.ok && again === null) return response;
      const words = await reason(response);
      if (again === null || waits === false) throw new Refused(response.status === 202 ? 503 : response.status, words);
      waits?.(words, again);
      await this.#pause(words, again, leaving);
    }
  }

  /** Goes by, while the page says that it waits. */
  async #pause(words, seconds, signal) {
    this.#waiting += 1;
    this.#tellBusy({ words, again: seconds });
    try {
      await pause(1000 * seconds, signal);
    } finally {
      this.#waiting -= 1;
      if (this.#waiting === 0) this.#tellBusy(null);
    }
  }

  /** A path of the records, of the replica that is looked at. */
  #place(path) {
    if (this.replica === null || !path.startsWith("/live/")) return path;
    return `${path}${path.includes("?") ? "&" : "?"}replica=${encodeURIComponent(this.replica)}`;
  }

  #fetch(path, body, headers, signal) {
    // A busy server then says so by a status that browsers do not write down as a failure.
    const asked = { "X-Pellucid-Viewer": this.viewer, Prefer: "respond-async", ...headers };
    if (this.key) asked.Authorization = `Bearer ${this.key}`;
    if (body !== undefined) asked["Content-Type"] = "application/json";
    return fetch(this.#place(path), {
      method: body === undefined ? "GET" : "POST",
      headers: asked,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
      cache: "no-store",
      credentials: "omit",
    });
  }

  async json(path, options) {
    return (await this.open(path, options)).json();
  }
}

/** In how many seconds a busy server wants to be asked again; null for any other answer. */
function whenAgain({ status, headers }) {
  const applied = status === 202 && headers.has("Preference-Applied");
  if (!applied && !((status === 429 || status === 503) && headers.has("Retry-After"))) return null;
  return Math.min(LONGEST_S, Number(headers.get("Retry-After")) || AGAIN_S);
}

/** Resolves after so many milliseconds; throws as fetch does when `signal` ends it. */
function pause(ms, signal) {
  return new Promise((resolve, reject) => {
    const end = () => (clearTimeout(timer), reject(signal.reason));
    const timer = setTimeout(() => (signal.removeEventListener("abort", end), resolve()), ms);
    if (signal.aborted) end();
    else signal.addEventListener("abort", end, { once: true });
  });
}

async function reason(response) {
  try {
    return (await response.json()).error.message;
  } catch {
    return `the server answered with status ${response.status}`;
  }
}
