// The sampler's funnel of one token: what each stage left of the vocabulary, and the draw.

import { el, replace } from "../core/dom.js";
import { digits, percent } from "../core/format.js";
import { visible } from "../draw/strip.js";

const STAGES = { logits: "logits", penalties: "penalties, bias", temperature: "temperature", top_k: "top-k", top_p: "top-p", min_p: "min-p", draw: "the draw" };
const FIELDS = [["temperature", "0.05", "1"], ["top_k", "1", "0"], ["top_p", "0.01", "1"], ["min_p", "0.01", "0"]];

/** Asks `/live/funnel` for a token, at the request's own settings or at others. */
export class Funnel {
  #app;
  #key = "";
  #node = null;

  constructor(app) {
    this.#app = app;
  }

  /** The node that shows the funnel of `token`; kept while the token is the same. */
  of(request, token) {
    const wanted = `${request} ${token.index}`;
    if (wanted === this.#key) return this.#node;
    this.#key = wanted;
    const shown = el("div", { aria: { live: "polite" } });
    const inputs = FIELDS.map(([name, step, value]) => [name, el("input", { type: "number", step, min: "0", value, size: "5" })]);
    const form = el("form", { class: "controls", on: { submit: (event) => {
      event.preventDefault();
      this.#show(shown, request, token, Object.fromEntries(inputs.map(([name, input]) => [name, Number(input.value)])));
    } } }, inputs.map(([name, input]) => el("label", {}, name.replace("_", "-"), input)), el("button", { type: "submit" }, "Try these on its logits"));
    this.#node = el("div", {}, el("h4", {}, "How it was drawn"), shown, form);
    this.#show(shown, request, token, null);
    return this.#node;
  }

  async #show(host, request, token, sampling) {
    replace(host, el("p", { class: "quiet" }, "The logits are looked up …"));
    try {
      const body = { request, index: token.index, ...(sampling ? { sampling } : {}) };
      const told = await this.#app.api.json("/live/funnel", { body });
      replace(host, drawn(told));
    } catch (error) {
      replace(host, el("p", { class: "quiet" }, error.message));
    }
  }
}

function drawn({ stages, drawn: id }) {
  return el("div", { class: "funnel" }, stages.map((stage) => el("div", { class: "stage" },
    el("div", { class: "quiet" }, `${STAGES[stage.name] ?? stage.name}: ${digits(stage.left)} left`),
    el("ol", {}, stage.top.slice(0, 8).map(([token, text, p]) => {
      const row = el("li", { class: token === id ? "chosen" : null }, el("span", {}, visible(text)), el("span", {}, stage.name === "logits" && p > 1 ? digits(p) : percent(p)), el("span", { class: "bar-of" }));
      row.lastChild.style.setProperty("--share", `${Math.max(0, Math.min(100, 100 * p))}%`);
      return row;
    })))));
}
