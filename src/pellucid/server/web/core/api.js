// What the pages ask of the server: every request in one place, with the key where one is given.

const KEY = "pellucid.key";

/** A refusal of the server, in its own words. */
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** Requests to the server that sent the pages. The key stays in this tab's session storage. */
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

  onKey(listener) {
    this.#listeners.add(listener);
  }

  /** A response that is known to be good. Throws `Refused`, or what fetch throws. */
  async open(path, { body, headers, signal } = {}) {
    const asked = { ...headers };
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
