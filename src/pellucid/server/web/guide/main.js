// The guide: its figures by their names, the theme, and the key where the server asks for one.

import { el } from "../core/dom.js";
import { Theme } from "../core/theme.js";
import { api, recorded } from "./ask.js";
import { attention } from "./figures/attention.js";
import { batching } from "./figures/batching.js";
import { funnel } from "./figures/funnel.js";
import { growing } from "./figures/growing.js";
import { kvCache } from "./figures/kv.js";
import { layers } from "./figures/layers.js";
import { life } from "./figures/life.js";
import { pages } from "./figures/pages.js";
import { phases } from "./figures/phases.js";
import { positions } from "./figures/positions.js";
import { quantisation } from "./figures/quantisation.js";
import { queue } from "./figures/queue.js";
import { roofline } from "./figures/roofline.js";
import { rounding } from "./figures/rounding.js";
import { sampling } from "./figures/sampling.js";
import { serving } from "./figures/serving.js";
import { slots } from "./figures/slots.js";
import { speculation } from "./figures/speculation.js";
import { stream } from "./figures/stream.js";
import { tiles } from "./figures/tiles.js";
import { tokens } from "./figures/tokens.js";
import { trips } from "./figures/trips.js";
import { turning } from "./figures/turning.js";

const FIGURES = {
  attention, batching, funnel, growing, "kv-cache": kvCache, layers, life, pages, phases, positions, quantisation, queue, roofline,
  rounding, sampling, serving, slots, speculation, stream, tiles, tokens, trips, turning,
};

/** `<pellucid-figure name="attention">`: drawn when it comes near the window, so that a page asks for little. */
class PellucidFigure extends HTMLElement {
  connectedCallback() {
    const draw = FIGURES[this.getAttribute("name")];
    if (!draw) return;
    const seen = new IntersectionObserver((entries) => {
      if (!entries.some((entry) => entry.isIntersecting)) return;
      seen.disconnect();
      draw(this);
    }, { rootMargin: "300px" });
    seen.observe(this);
  }
}

const theme = new Theme();
const modes = { auto: "Theme of the system", light: "Light", dark: "Dark" };
const select = el("select", { aria: { label: "Theme" } }, Object.entries(modes).map(([value, text]) => el("option", { value }, text)));
select.value = theme.mode;
select.addEventListener("change", () => theme.set(select.value));
const tools = document.querySelector(".tools");
tools.append(select);
if (!recorded) {
  tools.prepend(el("a", { href: "/" }, "The engine, live"));
  const key = el("input", { type: "password", placeholder: "API key", autocomplete: "off", aria: { label: "API key" } });
  key.value = api.key;
  key.addEventListener("change", () => {
    api.key = key.value;
    location.reload(); // figures ask when they are first seen
  });
  const form = el("form", { hidden: !api.key, on: { submit: (event) => event.preventDefault() } }, key); // a form, so that browsers know what it is
  tools.append(form);
  document.addEventListener("pellucid-refused", () => (form.hidden = false));
}
customElements.define("pellucid-figure", PellucidFigure);

// For whoever looks behind the page, tests among them.
globalThis.pellucid = { guide: Object.keys(FIGURES), recorded };
