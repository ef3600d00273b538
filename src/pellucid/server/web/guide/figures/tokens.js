// What a text is to the model: its tokens, and the merges that made them.

import { el, replace } from "../../core/dom.js";
import { DEFAULTS } from "../defaults.js";
import { chip, visible } from "../draw.js";
import { frame, textField } from "../frame.js";
import { Player } from "../player.js";

export function tokens(host) {
  const figure = frame(host, "What does the model see of your text?", "live");
  const chips = el("div", { class: "chips" });
  const merges = el("div", {});
  const field = textField("Text", DEFAULTS.text, () => cut(), { rows: 3 });
  figure.controls.append(field.element);
  figure.picture.append(chips, merges);
  let player = null;

  const cut = () => figure.busy(async () => {
    const text = field.field.value;
    const seen = await figure.ask("/tokenize/pieces", { prompt: text, merges: true });
    replace(chips, seen.pieces.map((piece, i) => chip(piece.text, piece.id, i)));
    const bytes = new TextEncoder().encode(text).length;
    const each = seen.pieces.length ? ` ${(bytes / seen.pieces.length).toFixed(1)} bytes a token.` : "";
    figure.say(`${[...text].length} characters, ${bytes} bytes, ${seen.pieces.length} tokens of ${seen.vocab_size.toLocaleString("en")} that there are.${each}`);
    player?.stop();
    const longest = (seen.merges ?? []).toSorted((a, b) => b.steps.length - a.steps.length)[0];
    if (!longest?.steps.length) return void replace(merges);
    const rows = rowsOf(longest);
    const row = el("div", { class: "chips" });
    const said = el("p", { class: "quiet" });
    player = new Player(rows.length, (at) => {
      replace(row, rows[at].symbols.map((symbol, i) => chip(symbol, "", rows[at].made === i ? 1 : 4)));
      said.textContent = rows[at].says;
    });
    replace(merges, el("p", {}, `How “${visible(longest.text)}” came together, merge by merge:`), row, said, player.element);
    player.show(0);
  });
  cut();
}

/** The symbols after each merge; `made` is the place of the one that it made. */
export function rowsOf(piece) {
  let parts = piece.symbols.map((text, start) => ({ text, start }));
  const row = (made, says) => ({ symbols: parts.map((part) => part.text), made, says });
  const rows = [row(null, "Single bytes or characters, before any merge.")];
  for (const step of piece.steps) {
    const at = parts.findIndex((part) => part.start === step.position);
    parts = [...parts.slice(0, at), { text: step.merged, start: step.position }, ...parts.slice(at + 2)];
    const rank = step.rank === null ? "" : `, the merge that was learnt as number ${(step.rank + 1).toLocaleString("en")}`;
    rows.push(row(at, `“${visible(step.left)}” and “${visible(step.right)}” become one${rank}.`));
  }
  return rows;
}
