// The bar at the top: what is served, where the records come from, what is selected.

import { choice } from "../draw/choice.js";
import { el, replace, say } from "./dom.js";
import { digits } from "./format.js";
import { requestPaint, shortName } from "./names.js";
import { NOTHING } from "./selection.js";
import { RECORDED } from "./store.js";
import { download, readRecording } from "./recording.js";

const STATES = {
  connecting: "connecting", live: "live", paused: "paused", hidden: "paused while the tab is hidden",
  absent: "no live records on this server", locked: "an API key is needed", lost: "not connected", recording: "recording",
};

/** A drag that was silent for so long is over. */
const DRAG_MS = 700;

const fileName = (what) => `pellucid-${what}-${new Date().toISOString().slice(0, 19).replaceAll(":", "")}.json`;

/** What a recording cost, and what it lost. */
function costOf({ steps, steps_let_go: letGo, dropped, cpu_s: cpu }) {
  return [
    steps ? `${digits(steps)} steps` : "",
    letGo ? `${digits(letGo)} older ones let go` : "",
    dropped ? `${digits(dropped)} never seen` : "",
    typeof cpu === "number" ? `recording took ${digits(cpu)} s of the processor` : "",
  ].filter(Boolean).join(", ");
}

/** Actions behind one word. It closes when one is chosen, by Escape, and when the focus or the pointer goes elsewhere. */
function menu(name, ...actions) {
  const details = el("details", { class: "menu" }, el("summary", {}, name), el("div", { class: "actions" }, actions));
  const close = () => (details.open = false);
  details.addEventListener("click", (event) => event.target.closest(".actions button") && close());
  details.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    close();
    details.firstElementChild.focus();
  });
  details.addEventListener("focusout", (event) => event.relatedTarget && !details.contains(event.relatedTarget) && close());
  addEventListener("pointerdown", (event) => details.contains(event.target) || close());
  return details;
}

/** Fills the bar and the line of what is selected. */
export class Header {
  #app;
  /** What was wrong with the last recording that was opened. */
  #problem = "";
  #busy = "";

  constructor(app, bar, selected, notice) {
    this.#app = app;
    this.notice = notice;
    this.model = el("span", { class: "model" });
    this.replica = el("select", { hidden: true, title: "Requests go to all of them; the figures show one", aria: { label: "Replica that is shown" }, on: { change: () => this.#show(this.replica.value) } });
    this.state = el("span", { class: "state", role: "status" });
    this.dropped = el("span", { class: "quiet" });
    this.pause = el("button", { type: "button", on: { click: () => this.#pauseOrGoOn() } });
    this.file = el("input", { type: "file", accept: "application/json,.json", hidden: true, on: { change: () => this.open(this.file.files[0]) } });
    this.trace = el("button", { type: "button", title: "Of the server's last steps; Perfetto and chrome://tracing open it", on: { click: () => this.#trace() } }, "Save trace for Perfetto");
    this.key = el("input", { type: "password", size: "14", autocomplete: "off", placeholder: "API key", aria: { label: "API key" }, on: { change: () => (app.api.key = this.key.value) } });
    this.key.value = app.api.key;
    bar.append(this.model, this.replica, this.state, this.dropped, el("span", { class: "grow" }), el("div", { class: "tools" },
      this.key, this.pause, this.file,
      menu("Recording",
        el("button", { type: "button", title: "Or drop the file on the page", on: { click: () => this.file.click() } }, "Open recording …"),
        el("button", { type: "button", on: { click: () => this.#save() } }, "Save recording"),
        this.trace),
      this.#themes()));
    this.chips = el("span", { class: "chips" });
    selected.prepend(this.chips);
    this.#dropping();
    app.onChange(() => this.#soon());
    app.api.onBusy((told) => {
      this.#busy = told ? `The server is busy: ${told.words}. Asking again in ${digits(told.again)} s.` : "";
      this.#soon();
    });
    this.draw();
  }

  #soon() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.draw();
    });
  }

  draw() {
    const { store, feed, recording } = this.#app;
    const state = recording === null ? feed.state : "recording";
    this.state.dataset.state = state;
    say(this.state, recording === null ? STATES[state] : `recording: ${recording.name}`);
    say(this.model, store.about?.model ? `${store.about.model.title || store.about.model.name}, ${store.about.machine.backend ?? ""} ${store.about.machine.simd ?? ""}, ${store.about.machine.threads} threads` : "");
    const lost = store.dropped ? `${digits(store.dropped)} records dropped` : "";
    say(this.dropped, (recording?.cost && costOf(recording.cost)) || lost);
    this.trace.hidden = recording !== null;
    say(this.pause, recording !== null ? "Back to live" : state === "paused" ? "Go on" : "Pause");
    this.key.hidden = state !== "locked" && !this.#app.api.key;
    this.#tell(this.#problem || (["lost", "locked"].includes(state) ? feed.reason : this.#busy));
    this.#drawReplicas(recording === null ? (store.about?.replicas ?? null) : null);
    this.#drawChips();
  }

  /** Where there are several engines, which of them the figures show. */
  #drawReplicas(told) {
    this.replica.hidden = !told;
    const signature = JSON.stringify(told);
    if (!told || signature === this.replicas) return;
    this.replicas = signature;
    replace(this.replica, told.names.map((name, i) => el("option", { value: name }, `replica ${i + 1} of ${told.names.length} (${name})`)));
    this.replica.value = told.shown;
  }

  #show(name) {
    this.#app.selection.set({ ...NOTHING, replica: name });
  }

  #tell(text) {
    say(this.notice, text);
    this.notice.hidden = !text;
  }

  #drawChips() {
    const { current } = this.#app.selection;
    const signature = JSON.stringify(current);
    if (signature === this.drawn) return;
    this.drawn = signature;
    const chips = [];
    if (current.request !== null) chips.push(this.#chip("request", shortName(current.request), requestPaint(current.request)));
    if (current.step !== null) chips.push(this.#chip("step", `step ${current.step}`), this.#stepper());
    if (current.op !== null) chips.push(this.#chip("op", current.op));
    if (current.time !== null) chips.push(this.#chip("time", `${digits(1000 * (current.time[1] - current.time[0]))} ms of time`));
    if (!chips.length) chips.push(el("span", { class: "quiet" }, "Nothing selected: the figures follow the engine."));
    replace(this.chips, chips);
  }

  #chip(field, text, paint) {
    const drop = el("button", { type: "button", aria: { label: `Select no ${field}` }, on: { click: () => this.#app.selection.set({ [field]: null }) } }, "×");
    return el("span", { class: "chip" }, paint ? el("span", { class: "swatch", data: { paint } }) : null, text, drop);
  }

  #stepper() {
    const go = (by) => {
      const steps = this.#app.store.steps;
      const i = steps.findIndex((s) => s.id === this.#app.selection.current.step);
      const next = steps[i + by];
      if (i >= 0 && next) this.#app.selection.set({ step: next.id });
    };
    return el("span", { class: "stepper" },
      el("button", { type: "button", aria: { label: "Step before" }, on: { click: () => go(-1) } }, "‹"),
      el("button", { type: "button", aria: { label: "Step after" }, on: { click: () => go(1) } }, "›"));
  }

  #themes() {
    const modes = ["auto", "light", "dark"].map((mode) => [mode, mode]);
    return choice("Theme", modes, this.#app.theme.mode, (mode) => this.#app.theme.set(mode));
  }

  #pauseOrGoOn() {
    const { feed } = this.#app;
    this.#problem = "";
    if (this.#app.recording !== null) {
      this.#app.recording = null;
      this.#app.store.reset();
      feed.start();
    } else if (feed.state === "paused") {
      feed.start();
    } else {
      feed.stop();
    }
  }

  /** Opens a recording in place of the live feed. */
  async open(file) {
    if (!file) return;
    try {
      const { about, records, recording: cost = null } = await readRecording(file);
      this.#app.feed.stop();
      this.#app.recording = { name: file.name, cost };
      this.#app.store.reset(about ?? null, RECORDED);
      this.#app.store.add(records);
      this.#app.selection.clear();
      this.#problem = "";
    } catch (error) {
      this.#problem = `${file.name}: ${error.message}`;
    }
    this.file.value = "";
    this.#app.changed();
  }

  /** What this page has seen, as a file that it opens again. */
  #save() {
    download(fileName("recording"), this.#app.store);
  }

  async #trace() {
    try {
      download(fileName("trace"), await (await this.#app.api.open("/live/trace")).text());
    } catch (error) {
      this.#problem = error.message;
      this.draw();
    }
  }

  #dropping() {
    const cover = el("div", { class: "drop", hidden: true }, "Drop a recording to open it");
    document.body.append(cover);
    const holds = (event) => event.dataTransfer?.types.includes("Files");
    let gone = null;
    // A file that is held over the page says so several times a second; not every way of leaving is told.
    addEventListener("dragover", (event) => {
      if (!holds(event)) return;
      event.preventDefault();
      cover.hidden = false;
      clearTimeout(gone);
      gone = setTimeout(() => (cover.hidden = true), DRAG_MS);
    });
    addEventListener("drop", (event) => {
      if (!holds(event)) return;
      event.preventDefault();
      cover.hidden = true;
      this.open(event.dataTransfer.files[0]);
    });
  }
}
