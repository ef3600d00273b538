// What the pages ask of the server: every request in one place, with the key where one is given.

const KEY = "pellucid.key";
const VIEWER = "pellucid.viewer";
const OWN = "pellucid.own";
const OWN_KEPT = 64;

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

  /** A response that is known to be good. Throws `Refused`, or what fetch throws. */
  async open(path, { body, headers, signal } = {}) {
    const asked = { "X-Pellucid-Viewer": this.viewer, ...headers };
    if (this.key) asked.Authorization = `Bearer ${this.key}`;
    if (body !== undefined) asked["Content-Type"] = "application/json";
    const response = await fetch(path, {
      method: body === undefined ? "GET" : "POST",
      headers: asked,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
      cache: "no-store",
      credentials: "omit",
    });
    if (!response.ok) throw new Refused(response.status, await reason(response));
    return response;
  }

  async json(path, options) {
    return (await this.open(path, options)).json();
  }
}

async function reason(response) {
  try {
    return (await response.json()).error.message;
  } catch {
    return `the server answered with status ${response.status}`;
  }
}
