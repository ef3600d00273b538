// The one selection that all figures share, kept in the URL's hash: a link reproduces the view.

const FIELDS = ["replica", "request", "step", "op", "time"];

export const NOTHING = Object.freeze({ replica: null, request: null, step: null, op: null, time: null });

/** A selection as the text after `#`; fields that are not set are left out. */
export function write(selection) {
  const words = new URLSearchParams();
  for (const field of FIELDS) {
    const value = selection[field];
    if (value === null) continue;
    words.set(field, field === "time" ? value.map((t) => t.toFixed(4)).join("-") : String(value));
  }
  return words.toString();
}

/** The selection that a hash means; what it gets wrong is not selected. */
export function read(hash) {
  const words = new URLSearchParams(hash.replace(/^#/, ""));
  const step = /^\d{1,15}$/.test(words.get("step") ?? "") ? Number(words.get("step")) : null;
  return {
    replica: words.get("replica")?.slice(0, 200) || null,
    request: words.get("request")?.slice(0, 200) || null,
    step,
    op: words.get("op")?.slice(0, 200) || null,
    time: range(words.get("time")),
  };
}

function range(text) {
  const found = /^(\d+(?:\.\d+)?)-(\d+(?:\.\d+)?)$/.exec(text ?? "");
  if (!found) return null;
  const [from, to] = [Number(found[1]), Number(found[2])];
  return from < to ? [from, to] : null;
}

/** Holds what is selected, and what the pointer is over; tells who listens of both. */
export class Selection {
  #listeners = new Set();
  #location;
  current;
  hovered = NOTHING;

  /** `location`: the window's, or anything with a `hash`. */
  constructor(location) {
    this.#location = location;
    this.current = read(location.hash);
  }

  /** Follows the back button and links. */
  follow(target) {
    target.addEventListener("hashchange", () => {
      const wanted = read(this.#location.hash);
      if (write(wanted) === write(this.current)) return;
      this.current = wanted;
      this.#tell();
    });
  }

  onChange(listener) {
    this.#listeners.add(listener);
  }

  /** Selects the fields given; the others stay. */
  set(fields) {
    const next = { ...this.current, ...fields };
    if (write(next) === write(this.current)) return;
    this.current = next;
    const hash = write(next);
    if (this.#location.hash.replace(/^#/, "") !== hash) this.#location.hash = hash;
    this.#tell();
  }

  /** Selects the fields, or nothing there if they are what is selected. */
  toggle(fields) {
    const same = Object.entries(fields).every(([name, value]) => this.current[name] === value);
    const none = Object.fromEntries(Object.keys(fields).map((name) => [name, null]));
    this.set(same ? none : fields);
  }

  /** Selects nothing of what is shown; whose records they are stays. */
  clear() {
    this.set({ ...NOTHING, replica: this.current.replica });
  }

  hover(fields) {
    const next = { ...NOTHING, ...fields };
    if (write(next) === write(this.hovered)) return;
    this.hovered = next;
    this.#tell();
  }

  #tell() {
    for (const listener of this.#listeners) listener(this.current);
  }
}
