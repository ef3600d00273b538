// Figure 9: what became of a text: pieces, ids and bytes, and the merges that made them.

import { el, replace } from "../core/dom.js";
import { digits, num, plural } from "../core/format.js";
import { legend } from "../draw/legend.js";
import { drawStrip, visible } from "../draw/strip.js";

const SAMPLE = "Tokenization isn't obvious: naïve café, 🌍, 12345.";
const SETTLE_MS = 250;
const NONE = "none";
const BYTES = "bytes";

export const tokenizerBench = {
  name: "tokenizer",
  number: 9,
  title: "Tokenizer bench",
  question: "What became of my text?",
  wide: true,

  view(app) {
    const bench = app.bench;
    if (!bench || !bench.answers.length) return { benches: [], text: bench?.text ?? SAMPLE, why: bench?.why ?? "" };
    return { text: bench.text, unit: { offsets: "characters" }, benches: bench.answers.map(({ tokenizer, pieces, merges, merges_why_not, vocab_size }) => ({ tokenizer, vocab_size, pieces, merges, merges_why_not })) };
  },

  sentence(view) {
    if (!view.benches.length) return [view.why || "The text is being tokenised."];
    const length = [...view.text].length;
    const said = [`${plural(length, "character")} became `];
    view.benches.forEach((bench, i) => {
      const own = bench.pieces.filter((p) => p.part === "text").length;
      said.push(i ? "; " : "", num(plural(bench.pieces.length, "token")), ` by ${bench.tokenizer}`, ` (${digits(length / Math.max(1, own))} characters in each of the text's own)`);
    });
    return [...said, "."];
  },

  table(view) {
    return {
      caption: "Tokens of the text",
      columns: [{ name: "tokenizer", number: false }, { name: "token" }, { name: "id" }, { name: "piece", number: false }, { name: "bytes", number: false }, { name: "from" }, { name: "to" }, { name: "part", number: false }],
      rows: view.benches.flatMap((b) => b.pieces.map((p, i) => [b.tokenizer, i + 1, p.id, p.text, p.bytes, p.start, p.end, p.part])),
    };
  },

  mount(body, app, redraw) {
    const bench = new Bench(app, redraw);
    const hosts = el("div", { class: "columns" });
    body.append(hosts);
    bench.start();
    return {
      controls: bench.controls,
      draw: (view) => bench.draw(hosts, view),
      legend: legend(["stage-prefill", "the text's own tokens"], ["rule", "added, or the template's"]).concat(document.createTextNode("Click a token: its merges, one by one.")),
    };
  },
};

/** Asks for the tokens of the text as it is typed, by one tokenizer or two. */
class Bench {
  #app;
  #redraw;
  #timer = null;
  #asked = 0;
  #chosen = null;
  #over = null;
  #drawn = "";

  constructor(app, redraw) {
    this.#app = app;
    this.#redraw = redraw;
    const later = { input: () => this.#soon() };
    this.text = el("textarea", { class: "code", rows: "2", spellcheck: "false", aria: { label: "Text to tokenise" }, on: later }, SAMPLE);
    this.chat = el("input", { type: "checkbox", on: { change: () => this.#ask() } });
    this.special = el("input", { type: "checkbox", on: { change: () => this.#ask() } });
    this.second = el("select", { on: { change: () => this.#ask() } }, this.#others([]));
    this.controls = [
      this.text,
      el("label", {}, this.chat, "as a message, in the chat template"),
      el("label", {}, this.special, "read control tokens"),
      el("label", {}, "beside", this.second),
    ];
  }

  start() {
    this.#app.api.onKey(() => this.#names());
    this.#names();
  }

  async #names() {
    try {
      const { tokenizers } = await this.#app.api.json("/tokenize/tokenizers");
      replace(this.second, this.#others(tokenizers.slice(1)));
      this.own = tokenizers[0];
    } catch {
      this.own = null; // what is wrong is said of the text, which is asked for next
    }
    this.#ask();
  }

  #others(names) {
    const options = [[NONE, "no other"], [BYTES, "plain bytes"], ...names.map((name) => [name, name])];
    return options.map(([value, words]) => el("option", { value }, words));
  }

  #soon() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#ask(), SETTLE_MS);
  }

  async #ask() {
    const turn = (this.#asked += 1);
    const text = this.text.value;
    const first = this.chat.checked
      ? { messages: [{ role: "user", content: text }], merges: true }
      : { prompt: text, merges: true, ...(this.special.checked ? { parse_special: true } : {}) };
    const asks = [[this.own ?? "the served model", first]];
    if (![NONE, BYTES].includes(this.second.value)) asks.push([this.second.value, { prompt: text, merges: true, tokenizer: this.second.value, ...(this.special.checked ? { parse_special: true } : {}) }]);
    let bench;
    try {
      const answers = await Promise.all(asks.map(async ([tokenizer, body]) => ({ tokenizer, ...(await this.#app.api.json("/tokenize/pieces", { body })) })));
      if (this.second.value === BYTES) answers.push(inBytes(text));
      bench = { text, answers, why: "" };
    } catch (error) {
      bench = { text, answers: [], why: error.message };
    }
    if (turn !== this.#asked) return; // a later text was asked for meanwhile
    this.#chosen = null;
    this.#drawn = "";
    this.#app.bench = bench;
    this.#redraw();
  }

  draw(hosts, view) {
    const signature = JSON.stringify([this.#asked, this.#chosen, this.#over]);
    if (signature === this.#drawn) return;
    this.#drawn = signature;
    while (hosts.children.length > view.benches.length) hosts.lastChild.remove();
    view.benches.forEach((bench, i) => this.#drawBench(hosts.children[i] ?? hosts.appendChild(benchHost()), bench, i));
  }

  #drawBench(host, bench, number) {
    const [title, strip, detail] = host.children;
    replace(title, `${bench.tokenizer}, ${digits(bench.vocab_size)} tokens in its vocabulary`);
    drawStrip(strip, bench.pieces.map((piece, i) => this.#token(piece, i, number)), {
      choose: (index) => this.#choose(number, Number(index)),
      over: (index) => this.#link(this.#app.bench.answers[number]?.pieces[Number(index)]),
      out: () => this.#link(null),
    }, `Tokens by ${bench.tokenizer}`);
    const chosen = this.#chosen?.number === number ? bench.pieces[this.#chosen.index] : null;
    detail.hidden = !chosen;
    if (chosen) replace(detail, mergesOf(bench, chosen));
  }

  #token(piece, i, number) {
    const linked = this.#over && piece.start < this.#over[1] && this.#over[0] < piece.end;
    return {
      key: i, text: visible(piece.text), className: `${piece.part === "text" ? "" : piece.part} cell${linked ? " linked" : ""}`,
      paint: i % 2 ? "stage-prefill" : "stage-decode", pressed: this.#chosen?.number === number && this.#chosen.index === i,
      title: `characters ${piece.start} to ${piece.end}, ${piece.part}`,
      children: [el("small", {}, String(piece.id)), el("small", { class: "hex" }, spaced(piece.bytes))],
    };
  }

  #choose(number, index) {
    const same = this.#chosen?.number === number && this.#chosen.index === index;
    this.#chosen = same ? null : { number, index };
    this.#redraw();
  }

  #link(piece) {
    const over = piece && piece.end > piece.start ? [piece.start, piece.end] : null;
    if (JSON.stringify(over) === JSON.stringify(this.#over)) return;
    this.#over = over;
    this.#redraw();
  }
}

/** The tokenizer that merges nothing: a token for each byte of UTF-8. */
function inBytes(text) {
  const encoder = new TextEncoder();
  const pieces = [];
  [...text].forEach((character, at) => {
    for (const byte of encoder.encode(character)) {
      const own = byte < 128 ? character : "\ufffd";
      pieces.push({ id: byte, text: own, bytes: byte.toString(16).padStart(2, "0"), start: at, end: at + 1, part: "text" });
    }
  });
  return { tokenizer: "plain bytes", vocab_size: 256, pieces, merges: null, merges_why_not: "Bytes are not merged." };
}

const benchHost = () => el("div", {}, el("h4", {}), el("div", { class: "strip bench" }), el("div", { class: "detail", hidden: true }));
const spaced = (hex) => (hex.length > 16 ? `${hex.slice(0, 14)}…` : hex).replace(/(..)(?=.)/g, "$1 ");

/** The merges of the stretch that a token came from. */
function mergesOf(bench, piece) {
  if (bench.merges === null) return el("p", { class: "quiet" }, bench.merges_why_not ?? "");
  const part = bench.merges.find((m) => m.start <= piece.start && piece.end <= m.end && m.end > m.start);
  if (!part) return el("p", { class: "quiet" }, "This token was added; no merge made it.");
  const rows = [part.symbols];
  let now = part.symbols.map((text, at) => ({ text, at }));
  for (const step of part.steps) {
    const i = now.findIndex((symbol) => symbol.at === step.position);
    if (i >= 0) now = [...now.slice(0, i), { text: step.merged, at: step.position }, ...now.slice(i + 2)];
    rows.push(now.map((symbol) => symbol.text));
  }
  return el("div", {},
    el("h4", {}, `${JSON.stringify(part.text)}: ${part.steps.length ? `${plural(part.steps.length, "merge")} of ${plural(part.symbols.length, "symbol")}` : "one token as it stands"}`),
    el("ol", { class: "merges" }, rows.map((row, i) => el("li", {},
      row.map((text) => [el("code", {}, visible(text)), " "]),
      i ? el("span", { class: "quiet" }, why(part.steps[i - 1])) : null))));
}

const why = ({ left, right, rank, score }) => `${visible(left)} + ${visible(right)} (${rank === null ? `score ${digits(score)}` : `rank ${digits(rank)}`})`;
