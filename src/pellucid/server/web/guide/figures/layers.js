// The logit lens: what the model would say after each layer.

import { el, replace } from "../../core/dom.js";
import { DEFAULTS } from "../defaults.js";
import { visible } from "../draw.js";
import { frame, textField } from "../frame.js";

export function layers(host) {
  const figure = frame(host, "When does the model know what it will say?", "live");
  const field = textField("Text, at most 24 tokens", DEFAULTS.prompt, () => look());
  figure.controls.append(field.element);
  const look = () => figure.busy(async () => {
    const seen = await figure.ask("/guide/look", { prompt: field.field.value });
    const rows = seen.lens.map((top, i) => el("tr", {}, el("th", { scope: "row" }, i === 0 ? "embedding" : `layer ${i}`), top.map(lensCell)));
    replace(figure.picture, el("div", { class: "scroll" }, el("table", { class: "lens" },
      el("caption", {}, "The three likeliest next tokens, if the model ended here. The fuller the colour, the surer."), el("tbody", {}, rows))));
    const final = seen.lens.at(-1)[0].text;
    const since = firstOfRun(seen.lens.map((top) => top[0].text));
    figure.say(`“${visible(final)}” is the likeliest after the last layer${since < seen.lens.length - 1 ? `, and has been since layer ${since}` : ", and was not before it"}.`);
  });
  look();
}

/** From which layer on the likeliest token is the one that it is at the end. */
export function firstOfRun(texts) {
  let at = texts.length - 1;
  while (at > 0 && texts[at - 1] === texts.at(-1)) at--;
  return at;
}

function lensCell(one) {
  const node = el("td", {}, visible(one.text), " ", el("small", {}, `${(100 * one.p).toFixed(one.p < 0.1 ? 1 : 0)} %`));
  node.style.setProperty("--share", `${Math.round(100 * one.p)}%`);
  return node;
}
