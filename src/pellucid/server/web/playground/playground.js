// The playground: a conversation or a text to go on from. What it asks is what the figures show.

import { el, replace, say } from "../core/dom.js";
import { choice } from "../draw/choice.js";
import { digits, duration, glyph, percent } from "../core/format.js";
import { requestPaint, shortName } from "../core/names.js";
import { ask } from "./stream.js";

const PARAMS = [
  ["temperature", { type: "number", min: "0", max: "2", step: "0.1", value: "0.7" }],
  ["top_p", { type: "number", min: "0", max: "1", step: "0.05", value: "1" }],
  ["max_tokens", { type: "number", min: "1", step: "1", value: "96" }],
  ["seed", { type: "number", step: "1", placeholder: "any" }],
];
const SAMPLES = { chat: "Why is the sky blue? Answer in two sentences.", completion: "Michael Jordan played the sport of" };

/** The panel beside the figures. */
export class Playground {
  #app;
  #mode = "chat";
  #messages = [];
  #stop = null;

  constructor(app) {
    this.#app = app;
    this.#build();
  }

  #build() {
    this.modes = choice("What is asked", [["chat", "Chat"], ["completion", "Completion"]], this.#mode, (mode) => this.#setMode(mode));
    this.text = el("textarea", { rows: "3", aria: { label: "Prompt" }, on: { keydown: (event) => this.#enter(event) } }, SAMPLES.chat);
    this.fields = Object.fromEntries(PARAMS.map(([name, props]) => [name, el("input", { name, ...props })]));
    this.probabilities = el("input", { type: "checkbox", checked: true });
    this.copies = el("input", { type: "number", min: "1", max: "16", step: "1", value: "1", name: "at_once" });
    this.send = el("button", { type: "submit", class: "primary" }, "Ask");
    this.halt = el("button", { type: "button", hidden: true, on: { click: () => this.#stop?.abort() } }, "Stop");
    this.talk = el("div", { class: "talk", role: "log", tabindex: "0", aria: { label: "Conversation" } });
    this.timings = el("div", {});
    this.element = el("section", { class: "playground", aria: { labelledby: "playground-title" } },
      el("div", { class: "row" }, el("h2", { id: "playground-title" }, "Playground"), this.modes),
      this.talk,
      el("form", { on: { submit: (event) => this.#submit(event) } },
        this.text,
        el("details", {}, el("summary", {}, "Settings"),
          el("div", { class: "fields" },
            PARAMS.map(([name]) => el("label", {}, name.replace("_", " "), this.fields[name])),
            el("label", {}, "asked at once", this.copies)),
          el("label", { class: "row" }, el("span", {}, this.probabilities, " with probabilities"))),
        el("div", { class: "row" }, this.send, this.halt,
          el("button", { type: "button", class: "plain", on: { click: () => this.#clear() } }, "New"))),
      this.timings);
  }

  #setMode(mode) {
    if (mode === this.#mode) return;
    if (this.text.value === SAMPLES[this.#mode]) this.text.value = SAMPLES[mode];
    this.#mode = mode;
    this.#clear();
  }

  #clear() {
    this.#stop?.abort();
    this.#messages = [];
    replace(this.talk);
    replace(this.timings);
  }

  #enter(event) {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    this.element.querySelector("form").requestSubmit();
  }

  #params() {
    const params = {};
    for (const [name, input] of Object.entries(this.fields)) {
      if (input.value !== "" && Number.isFinite(input.valueAsNumber)) params[name] = input.valueAsNumber;
    }
    return params;
  }

  async #submit(event) {
    event.preventDefault();
    const text = this.text.value;
    if (!text || this.#stop) return;
    this.#stop = new AbortController();
    [this.send.disabled, this.halt.hidden] = [true, false];
    const chat = this.#mode === "chat";
    if (chat) this.#messages.push({ role: "user", content: text });
    this.talk.append(said("You", text, "user"));
    const asked = { chat, messages: [...this.#messages], prompt: text, params: this.#params(), probabilities: this.probabilities.checked };
    const copies = Math.min(16, Math.max(1, this.copies.valueAsNumber || 1));
    const answers = await Promise.all(Array.from({ length: copies }, (_, i) => this.#answer(asked, i, copies)));
    if (chat) {
      if (answers[0]) this.#messages.push({ role: "assistant", content: answers[0] });
      else this.#messages.pop();
      this.text.value = "";
    }
    this.#stop = null;
    [this.send.disabled, this.halt.hidden] = [false, true];
  }

  /** One answer, shown as it comes; its text, empty where it failed before a word. */
  async #answer(asked, number, copies) {
    const id = this.#app.api.newId();
    const node = said(copies > 1 ? `Answer ${number + 1}` : "Answer", "", "answer");
    const words = node.lastChild;
    this.talk.append(node);
    const params = number && asked.params.seed !== undefined ? { ...asked.params, seed: asked.params.seed + number } : asked.params;
    let text = "";
    try {
      const end = await ask(this.#app.api, { ...asked, params }, id, this.#stop.signal, {
        text: (more) => {
          text += more;
          words.append(document.createTextNode(more));
          this.talk.scrollTop = this.talk.scrollHeight;
        },
        tokens: (tokens) => this.#app.answers.streamed(id, tokens),
      });
      if (number === 0) this.#showTimings(end);
    } catch (error) {
      words.append(el("span", { class: "bad" }, error.name === "AbortError" ? " [stopped]" : `${text ? " " : ""}[${error.message}]`));
    }
    this.#link(node, id);
    return text;
  }

  /** A button that selects the request in all figures, once the records know it. */
  #link(node, id) {
    const find = () => this.#app.store.requests.find((r) => r.id === id || r.id.startsWith(`${id}.`));
    const show = () => {
      const request = find();
      if (request) this.#app.selection.set({ request: request.id, step: null, time: null });
    };
    const button = el("button", { type: "button", class: "plain", on: { click: show } }, "Where did its time go?");
    node.firstChild.append(button);
    const known = () => {
      const request = find();
      if (!request) return;
      end();
      node.dataset.paint = requestPaint(request.id);
      say(node.querySelector(".name"), ` ${shortName(request.id)}`);
    };
    const end = this.#app.store.onChange(known);
    known();
  }

  #showTimings({ usage, timings, clock, finish }) {
    const rows = [
      ["first text, by this browser's clock", duration(clock.first_ms)],
      ["last byte, by this browser's clock", duration(clock.total_ms)],
    ];
    if (timings) {
      rows.push(["in the queue", duration(timings.queue_time_ms)], [`prompt, ${digits(timings.prompt_n)} computed`, duration(timings.prompt_ms)],
        [`answer, ${digits(timings.predicted_n)} tokens`, duration(timings.predicted_ms)], ["between tokens", duration(timings.mean_itl_ms)],
        ["tokens a second", digits(timings.predicted_per_second)]);
      if (timings.cache_n) rows.push(["of the prompt from the cache", percent(timings.cache_n / (timings.cache_n + timings.prompt_n))]);
    }
    if (usage) rows.push(["tokens in, out", `${usage.prompt_tokens}, ${usage.completion_tokens}`]);
    rows.push(["ended by", finish ?? "–"]);
    replace(this.timings, el("dl", { class: "timings" }, rows.map(([name, value]) => [el("dt", {}, name), el("dd", {}, value, name === "ended by" ? null : glyph("measured"))])));
  }
}

function said(who, text, kind) {
  return el("div", { class: `said ${kind}` }, el("div", { class: "who" }, el("span", {}, who, el("span", { class: "name" }))), el("div", {}, text));
}
