// One token's life: text, tokens, vectors, layers, probabilities, the token that is chosen, and round again.

import { el } from "../../core/dom.js";
import { numbers } from "../ask.js";
import { DEFAULTS } from "../defaults.js";
import { bar, chip, visible } from "../draw.js";
import { button, frame, textField } from "../frame.js";
import { animate } from "../player.js";

export function life(host) {
  const figure = frame(host, "What happens to a prompt until there is one more token?", "live");
  const field = textField("Prompt", DEFAULTS.prompt, () => follow());
  let player = null;
  figure.controls.append(field.element, button("Follow it", () => follow()));

  const follow = () => figure.busy(async () => {
    const seen = await figure.ask("/guide/look", { prompt: field.field.value });
    player?.stop();
    player = animate(figure, framesOf(seen), { every: 1600 });
  });
  follow();
}

function framesOf(seen) {
  const text = seen.tokens.map((token) => token.text).join("");
  const chips = (below, more = []) => el("div", { class: "chips" }, seen.tokens.map((token, i) => chip(token.text, below(token, i), i)), more);
  const last = seen.lens.at(-1);
  const then = (words) => el("p", { class: "then" }, words);
  const frames = [
    {
      says: `The whole of it: a row of characters becomes ${seen.tokens.length} tokens, passes ${seen.layers} layers, and ends as a probability of each token there is. Go through it step by step.`,
      picture: () => el("div", {}, el("p", { class: "raw" }, visible(text)), then("tokens, by their numbers"), chips((token) => token.id), then(`${seen.layers} layers later: what comes next, and how surely`), last.map((one) => bar(visible(one.text), one.p, percent(one.p)))),
    },
    { says: "It begins as text.", picture: () => el("p", { class: "raw" }, visible(text)) },
    { says: `The tokenizer cuts it into ${seen.tokens.length} pieces that it knows, and gives each its number.`, picture: () => chips((token) => token.id) },
    { says: `Each number picks a row of a table: ${numbers.hidden} numbers for each token, learnt in training. From here on there is no text.`, picture: () => chips(() => `${numbers.hidden} numbers`) },
  ];
  seen.lens.slice(1, -1).forEach((top, i) => {
    frames.push({
      says: `Layer ${i + 1} of ${seen.layers} has looked at all tokens and added to each vector. Read out now, the last one would say “${visible(top[0].text)}”.`,
      picture: () => el("div", {}, chips(() => `layer ${i + 1}`), top.map((one) => bar(visible(one.text), one.p, percent(one.p)))),
    });
  });
  frames.push(
    { says: `After the last layer the vector of the last token is compared with every row of the table: ${numbers.vocab.toLocaleString("en")} scores, one for each token there is, made into probabilities.`, picture: () => el("div", {}, last.map((one) => bar(visible(one.text), one.p, percent(one.p)))) },
    { says: `One is chosen: “${visible(last[0].text)}”, if the likeliest is. It joins the prompt, and everything begins again, now for one token only.`, picture: () => chips((token) => token.id, [chip(last[0].text, "new", seen.tokens.length)]) },
  );
  return frames;
}

const percent = (p) => `${(100 * p).toFixed(1)} %`;
