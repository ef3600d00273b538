// What a head takes from where, on the model that runs.

import { el, replace } from "../../core/dom.js";
import { recorded } from "../ask.js";
import { DEFAULTS } from "../defaults.js";
import { bar, visible } from "../draw.js";
import { choice, frame, textField } from "../frame.js";

export function attention(host) {
  const figure = frame(host, "Which tokens does a head look at?", "live");
  let seen = null, head = 0, row = 0;
  const field = textField("Text, at most 24 tokens", DEFAULTS.prompt, () => look(null));
  const layers = choice("Layer", [], (value) => look(Number(value)));
  layers.field.disabled = recorded !== null;
  const heads = choice("Head", [], (value) => {
    head = Number(value);
    draw();
  });
  figure.controls.append(field.element, layers.element, heads.element);

  const look = (layer) => figure.busy(async () => {
    const body = layer === null ? { prompt: field.field.value } : { prompt: field.field.value, layer };
    seen = await figure.ask("/guide/look", body);
    head = seen.head;
    row = seen.tokens.length - 1;
    const options = (n) => Array.from({ length: n }, (_, i) => el("option", { value: i }, i));
    replace(layers.field, options(seen.layers));
    layers.field.value = seen.layer;
    replace(heads.field, options(seen.heads.length));
    heads.field.value = head;
    draw();
  });

  const draw = () => {
    const matrix = seen.heads[head];
    const words = seen.tokens.map((token) => visible(token.text));
    const body = matrix.map((weights, i) => el("tr", {},
      el("th", { scope: "row" }, rowButton(words[i], i)),
      weights.map((weight, j) => cell(weight, j <= i, `${words[i]} takes ${(100 * weight).toFixed(1)} % from ${words[j]}`))));
    const bars = matrix[row].slice(0, row + 1).map((weight, j) => bar(words[j], weight, `${(100 * weight).toFixed(1)} %`));
    replace(figure.picture, el("div", { class: "beside" },
      el("div", { class: "scroll" }, el("table", { class: "heat" }, el("caption", {}, "Each row: what that token takes from itself and those before it."), el("tbody", {}, body))),
      el("div", {}, el("p", { class: "quiet" }, `“${words[row]}” takes`), bars)));
    const most = matrix[row].indexOf(Math.max(...matrix[row]));
    figure.say(`Layer ${seen.layer}, head ${head}: “${words[row]}” takes most from “${words[most]}”. Choose another row, head or layer.`);
  };
  const rowButton = (word, i) => el("button", { type: "button", class: "plain", aria: { pressed: String(i === row) }, on: { click: () => { row = i; draw(); } } }, word);
  look(null);
}

function cell(weight, possible, title) {
  const node = el("td", { title: possible ? title : "The future: not seen", class: possible ? null : "future" });
  node.style.setProperty("--share", `${Math.round(100 * weight)}%`);
  return node;
}
