// Frame: what every figure has around it: its question, the sentence, three views of one data.

import { el, replace, say } from "../core/dom.js";
import { plainSentence, sentence } from "../core/format.js";
import { download } from "../core/recording.js";
import { drawTable } from "./table.js";

const VIEWS = ["figure", "table", "json"];
const REFRESH_MS = 1000;

/**
 * One figure on the page. `figure` has `name`, `number`, `title`, `question`, `wide`, and:
 * `view(app)`, plain data, `{empty, why}` where there is none; `sentence(view)`; `table(view)`;
 * `mount(body, app, redraw)` giving `{draw(view, width), controls, legend}`.
 */
export class Frame {
  #app;
  #figure;
  #mounted;
  #shown = "figure";
  #written = -Infinity;
  #said = "";
  visible = false;

  constructor(figure, app) {
    this.#app = app;
    this.#figure = figure;
    this.body = el("div", { class: "body" });
    this.other = el("div", { class: "other", hidden: true });
    this.said = el("p", { class: "sentence" });
    const redraw = () => app.ticker.mark(this);
    this.#mounted = figure.mount(this.body, app, redraw);
    this.element = this.#section(figure);
    app.ticker.watch(this.element, this);
    new ResizeObserver(redraw).observe(this.body);
    app.onChange(redraw);
  }

  get name() {
    return this.#figure.name;
  }

  /** The data that is drawn: what the table and the JSON show. */
  get view() {
    return this.#figure.view(this.#app);
  }

  onVisible(visible) {
    this.#figure.onVisible?.(visible, this.#app);
  }

  draw() {
    const view = this.view;
    this.element.classList.toggle("empty", Boolean(view.empty));
    this.#sayIt(view);
    if (this.#shown === "figure") {
      this.body.hidden = Boolean(view.empty);
      if (!view.empty) this.#mounted.draw(view, this.body.clientWidth);
    } else {
      this.#drawOther(view);
    }
  }

  #sayIt(view) {
    const parts = view.empty ? [`${capital(view.empty)}. ${view.why ?? ""}`] : this.#figure.sentence(view);
    const plain = plainSentence(parts);
    if (plain === this.#said) return;
    this.#said = plain;
    replace(this.said, sentence(parts));
  }

  #drawOther(view) {
    const now = performance.now();
    if (now - this.#written < REFRESH_MS) {
      setTimeout(() => this.#app.ticker.mark(this), REFRESH_MS);
      return;
    }
    this.#written = now;
    if (this.#shown === "table") {
      if (view.empty) replace(this.other, el("p", { class: "quiet" }, capital(view.empty)));
      else this.#keepScroll(() => drawTable(this.other, this.#figure.table(view)));
    } else {
      this.#drawJson(view);
    }
  }

  #keepScroll(draw) {
    const top = this.other.firstElementChild?.scrollTop ?? 0;
    draw();
    if (this.other.firstElementChild) this.other.firstElementChild.scrollTop = top;
  }

  #drawJson(view) {
    const text = JSON.stringify(view, null, 1);
    let code = this.other.querySelector("pre");
    if (!code) {
      code = el("pre", { tabindex: "0", role: "region", aria: { label: `${this.#figure.title} as JSON` } });
      const save = el("button", { type: "button", on: { click: () => download(`${this.#figure.name}.json`, this.view) } }, "Save this JSON");
      replace(this.other, code, save);
    }
    say(code, text);
  }

  #section({ name, number, title, question, wide }) {
    const views = el("div", { class: "segments", role: "group", aria: { label: `View of ${title}` } },
      VIEWS.map((view) => el("button", {
        type: "button", aria: { pressed: String(view === "figure") }, data: { view },
        on: { click: () => this.show(view) },
      }, view === "json" ? "JSON" : capital(view))));
    this.views = views;
    return el("section", { class: `figure${wide ? " wide" : ""}`, id: `figure-${name}`, aria: { labelledby: `${name}-question` } },
      el("header", {},
        el("div", { class: "eyebrow" }, el("span", { class: "no" }, String(number)), title),
        el("h3", { id: `${name}-question` }, question),
        views),
      this.said,
      this.#mounted.controls ? el("div", { class: "controls" }, this.#mounted.controls) : null,
      this.body,
      this.other,
      this.#mounted.legend ? el("div", { class: "legend" }, this.#mounted.legend) : null);
  }

  /** Shows one of the three views. */
  show(view) {
    this.#shown = view;
    this.#written = -Infinity;
    for (const button of this.views.children) button.setAttribute("aria-pressed", String(button.dataset.view === view));
    this.body.hidden = view !== "figure";
    this.other.hidden = view === "figure";
    replace(this.other);
    this.draw();
  }
}

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);
