// The page: its parts put together.

import { App } from "./core/app.js";
import { Header } from "./core/header.js";
import { Frame } from "./draw/frame.js";
import { anatomy } from "./figures/anatomy.js";
import { batchStrip } from "./figures/batch.js";
import { byteLedger } from "./figures/bytes.js";
import { capacity } from "./figures/capacity.js";
import { memoryAccount } from "./figures/memory.js";
import { pageMap } from "./figures/pages.js";
import { prefixTree } from "./figures/prefix.js";
import { roofline } from "./figures/roofline.js";
import { speculationLadder } from "./figures/speculation.js";
import { tokenStrip } from "./figures/tokens.js";
import { tokenizerBench } from "./figures/tokenizer.js";
import { waterfall } from "./figures/waterfall.js";
import { Playground } from "./playground/playground.js";

/** Figures by the part of the page that they stand in. */
const PLACES = {
  request: [waterfall, tokenStrip],
  step: [anatomy, byteLedger, roofline, batchStrip],
  memory: [pageMap, prefixTree, memoryAccount],
  beyond: [speculationLadder, capacity],
  text: [tokenizerBench],
};

const app = new App();
const frames = [];
new Header(app, document.querySelector(".bar"), document.querySelector(".selected"), document.querySelector(".notice"));
document.querySelector(".side").append(new Playground(app).element);
for (const [place, figures] of Object.entries(PLACES)) {
  let after = document.getElementById(place);
  for (const figure of figures) {
    const frame = new Frame(figure, app);
    frames.push(frame);
    after.after(frame.element);
    after = frame.element;
  }
}
document.addEventListener("click", jump);
app.feed.start();

/** Links within the page scroll, and leave the hash to the selection. */
function jump(event) {
  const link = event.target.closest?.('a[href^="#"]');
  const target = link && document.getElementById(link.getAttribute("href").slice(1));
  if (!target) return;
  event.preventDefault();
  target.setAttribute("tabindex", "-1");
  target.scrollIntoView({ behavior: app.theme.still ? "auto" : "smooth" });
  target.focus({ preventScroll: true });
}

// For whoever looks behind the page, tests among them: the data of each figure by its name.
globalThis.pellucid = {
  app,
  frames,
  view: (name) => frames.find((frame) => frame.name === name)?.view,
};
