// The sampler's funnel of one token: what each stage left of the vocabulary, and the draw.

import { el, replace } from "../core/dom.js";
import { digits, percent } from "../core/format.js";
import { visible } from "../draw/strip.js";

const STAGES = { logits: "logits", penalties: "penalties", temperature: "temperature", top_k: "top-k", top_p: "top-p", min_p: "min-p", draw: "the draw" };
const FIELDS = [["temperature", { step: "0.05", min: "0" }], ["top_k", { step: "1", min: "0" }], ["top_p", { step: "0.01", min: "0", max: "1" }], ["min_p", { step: "0.01", min: "0", max: "1" }]];
const SHOWN = 8;

/** Asks `/live/funnel` for a token, with the request's own parameters or with others in their place. */
export class Funnel {
  #app;
  #key = "";
  #node = null;

  constructor(app) {
    this.#app = app;
  }

  /** The node that shows the funnel of `token` of that answer; kept while the token is the same. */
  of(request, answer, token) {
    const wanted = `${request} ${answer} ${token.index}`;
    if (wanted === this.#key) return this.#node;
    this.#key = wanted;
    const shown = { said: el("p", { aria: { live: "polite" } }), stages: el("div", { class: "funnel" }) }; // the sentence alone is read aloud
    const inputs = FIELDS.map(([name, limits]) => [name, el("input", { type: "number", placeholder: "own", ...limits })]);
    const form = el("form", { class: "controls", on: { submit: (event) => {
      event.preventDefault();
      const given = inputs.filter(([, input]) => input.value !== "").map(([name, input]) => [name, input.valueAsNumber]);
      this.#show(shown, { request, answer, index: token.index }, Object.fromEntries(given));
    } } }, inputs.map(([name, input]) => el("label", {}, name.replace("_", "-"), input)), el("button", { type: "submit" }, "Draw again"));
    this.#node = el("div", {}, el("h4", {}, "How it was drawn"), shown.said, shown.stages, form);
    this.#show(shown, { request, answer, index: token.index }, {});
    return this.#node;
  }

  async #show({ said, stages }, asked, sampling) {
    const say = (text, quiet = true) => {
      said.textContent = text;
      said.classList.toggle("quiet", quiet);
    };
    replace(stages);
    say("The logits are computed again …");
    try {
      const told = await this.#app.api.json("/live/funnel", { body: { ...asked, sampling } });
      say(outcome(told, sampling), false);
      replace(stages, told.stages.map((stage) => drawn(stage, told.drawn)));
    } catch (error) {
      say(error.message);
    }
  }
}

function outcome({ drawn: id, chosen, text, without_form: withoutForm }, sampling) {
  const own = Object.keys(sampling).length === 0;
  const same = chosen === null || chosen === undefined || id === chosen ? "the token that was chosen" : "another token than was chosen";
  const said = `${own ? "With its own parameters" : "With these in their place"} the draw gives ${JSON.stringify(text)}: ${same}.`;
  return withoutForm ? `${said} The answer had to have a form, whose mask is not computed again.` : said;
}

function drawn(stage, id) {
  return el("div", { class: "stage" },
    el("div", { class: "stage-name" }, STAGES[stage.name] ?? stage.name, el("div", { class: "quiet" }, `${digits(stage.left)} left`)),
    el("ol", {}, stage.top.slice(0, SHOWN).map(([token, text, share]) => {
      const row = el("li", { class: token === id ? "chosen" : null }, el("span", {}, visible(text)), el("span", {}, percent(share)), el("span", { class: "bar-of" }));
      row.lastChild.style.setProperty("--share", `${Math.max(0, Math.min(100, 100 * share))}%`);
      return row;
    })));
}
