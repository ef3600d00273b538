// A figure's frame: its question, where its numbers come from, its controls, its picture, and a line of words.

import { el, replace } from "../core/dom.js";
import { ask, recorded } from "./ask.js";

const SAYS = {
  live: "asked of the engine that serves this page",
  computed: "computed in this page with the model's numbers",
  simulated: "simulated in this page",
};

/**
 * `{element, controls, picture, words, say(text), fail(error), busy(work), how(), ask(path, body), room(), onRoom(draw)}` of a figure that asks
 * `question`.
 */
export function frame(host, question, mark) {
  const controls = el("div", { class: "controls" });
  const picture = el("div", { class: "picture" });
  const words = el("p", { class: "words", role: "status" });
  const from = mark === "live" && recorded ? `recorded with ${recorded.model}, ${recorded.at}` : SAYS[mark];
  const title = el("figcaption", {}, el("strong", {}, question), " ", el("span", { class: "mark-of" }, from));
  const element = el("figure", { class: "live" }, title, controls, picture, words);
  replace(host, element);
  const say = (text) => {
    words.classList.remove("bad");
    words.textContent = text;
  };
  const fail = (error) => {
    words.classList.add("bad");
    words.textContent = error.message;
    if (error.status === 401) document.dispatchEvent(new Event("pellucid-refused")); // the page then asks for a key
  };
  let working = new AbortController();
  /** Runs `work` while the figure says that it waits; what it did before ends. */
  const busy = async (work) => {
    working.abort();
    const own = (working = new AbortController());
    element.setAttribute("aria-busy", "true");
    try {
      await work();
    } catch (error) {
      if (error.name !== "AbortError") fail(error);
    }
    if (own === working) element.removeAttribute("aria-busy");
  };
  const waits = (why, seconds) => say(`The server is busy: ${why}. Asking again in ${seconds} s.`);
  /** How this figure asks: as long as its work goes on; where the server is busy it says so, and asks again. */
  const how = () => ({ signal: working.signal, waits });
  const askIt = (path, body) => ask(path, body, how());
  /** How wide a drawing is, so that its words keep their size on a phone. */
  const room = () => Math.max(280, Math.min(620, picture.clientWidth || 620));
  let redraw = null, last = 0;
  /** Calls `draw`, the last that was given, when there is another width to draw for. */
  const onRoom = (draw) => {
    last = room();
    if (redraw === null) new ResizeObserver(() => {
      if (room() === last) return;
      last = room();
      redraw();
    }).observe(picture);
    redraw = draw;
  };
  return { element, controls, picture, words, say, fail, busy, how, ask: askIt, room, onRoom };
}

/** A text to ask with; in a copy it cannot be changed. `changed(text)` is called a moment after the last key. */
export function textField(label, value, changed, { rows = 1, wait = 350 } = {}) {
  const field = el(rows > 1 ? "textarea" : "input", { rows, type: rows > 1 ? null : "text", spellcheck: "false", disabled: recorded !== null });
  field.value = value;
  let timer = null;
  field.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => changed(field.value), wait);
  });
  return { element: el("label", { class: "wide" }, label, field), field };
}

/** A number between two ends, shown beside its slider by `shown`. */
export function slider(label, { min, max, step = 1, value, shown = String }, changed) {
  const out = el("output", {}, shown(value));
  const field = el("input", { type: "range", min, max, step });
  field.value = value;
  field.addEventListener("input", () => {
    out.textContent = shown(Number(field.value));
    changed(Number(field.value));
  });
  const set = (value) => {
    field.value = value;
    out.textContent = shown(value);
  };
  return { element: el("label", {}, label, field, out), set, get value() { return Number(field.value); } };
}

export function choice(label, options, changed) {
  const field = el("select", {}, options.map(([value, text]) => el("option", { value }, text)));
  field.addEventListener("change", () => changed(field.value));
  return { element: el("label", {}, label, field), field };
}

export function button(text, act, props = {}) {
  return el("button", { type: "button", on: { click: act }, ...props }, text);
}
