// Figure 8: the answer as tokens: how late each came, how surprising it was, and how it was drawn.

import { el, replace } from "../core/dom.js";
import { digits, duration, glyph, key, num, percent, plural } from "../core/format.js";
import { requestPaint, shortName } from "../core/names.js";
import { legend } from "../draw/legend.js";
import { drawStrip, visible } from "../draw/strip.js";
import { Funnel } from "./funnel.js";

const MOST = 400;

/** Which answer of a request with several is shown. The page has one such figure. */
const looked = { request: null, answer: 0 };

export const tokenStrip = {
  name: "tokens",
  number: 8,
  title: "Token strip",
  question: "Why this token, and why this late?",
  wide: true,

  view(app) {
    const request = chosen(app);
    if (!request) return { ...app.nothing, tokens: [] };
    const answers = Math.max(1, request.sequences?.length ?? 1);
    const answer = looked.request === request.id ? Math.min(looked.answer, answers - 1) : 0;
    const { tokens, texts, why = "", funnel } = app.answers.of(request, answer);
    if (!tokens.length) return { empty: "no traffic", why: `${shortName(request.id)} has no tokens yet, or its steps have left the window.`, tokens: [] };
    return {
      request: request.id, name: shortName(request.id), paint: requestPaint(request.id), state: request.state,
      unit: { ms_since_last: "ms", logprob: "natural logarithm" },
      answer, answers, texts, funnel, why,
      tokens: tokens.slice(-MOST).map((token) => (texts ? token : { ...token, id: null })), left_out: Math.max(0, tokens.length - MOST),
    };
  },

  sentence(view) {
    const [first, ...rest] = view.tokens.filter((t) => t.ms_since_last !== undefined);
    const said = [key(view.name, view.paint), view.answers > 1 ? `, answer ${view.answer + 1} of ${view.answers}:` : " has", ` ${plural(view.tokens.length + view.left_out, "token")}`];
    if (first && first.index === 0) said.push(": the first came after ", num(duration(first.ms_since_last)));
    if (rest.length) {
      const slow = rest.reduce((a, b) => (b.ms_since_last > a.ms_since_last ? b : a));
      const mean = rest.reduce((sum, t) => sum + t.ms_since_last, 0) / rest.length;
      said.push("; the others every ", num(duration(mean)), `, token ${slow.index + 1} as late as `, num(duration(slow.ms_since_last)), ` (step ${slow.step})`);
    }
    const odd = view.tokens.filter((t) => t.logprob !== undefined).sort((a, b) => a.logprob - b.logprob)[0];
    if (odd) said.push(`. The least likely was ${JSON.stringify(odd.text)}, at `, num(percent(Math.exp(odd.logprob))));
    said.push(".");
    if (!view.texts) said.push(` Its text is not shown${view.why ? `: ${view.why}` : "."}`);
    return said;
  },

  table(view) {
    return {
      caption: `Tokens of ${view.name}`,
      columns: [{ name: "token" }, { name: "id" }, { name: "text", number: false }, { name: "since the last", unit: "ms", mark: "measured" }, { name: "probability", mark: "measured" }, { name: "step" }],
      rows: view.tokens.map((t) => [t.index + 1, t.id, t.text ?? "", t.ms_since_last, t.logprob === undefined ? null : Math.exp(t.logprob), t.step]),
    };
  },

  mount(body, app, redraw) {
    const which = el("select", { on: { change: () => ((looked.answer = Number(which.value)), redraw()) } });
    const chooser = el("label", { class: "quiet", hidden: true }, "answer ", which);
    const strip = el("div", { class: "strip" });
    const detail = el("div", { class: "detail", hidden: true });
    const funnel = new Funnel(app);
    const state = { chosen: null, drawn: "" };
    body.append(chooser, strip, detail);
    return {
      draw(view) {
        drawChooser(chooser, which, view);
        drawTokens(strip, detail, funnel, app, state, view);
      },
      legend: legend(["stage-decode", "bar: time since the token before"], ["stage-prefill", "tint: surprise"]).concat(document.createTextNode("Click a token: what it was chosen from.")),
    };
  },
};

function chosen(app) {
  const { request } = app.selection.current;
  if (request !== null) return app.store.request(request);
  const withTokens = app.requestsIn.filter((r) => r.output_tokens > 0);
  return withTokens.findLast((r) => app.api.owns(r.id)) ?? withTokens.at(-1) ?? null;
}

/** Which answer is shown, where a request has several. */
function drawChooser(chooser, which, { request, answer, answers }) {
  looked.request = request;
  looked.answer = answer;
  chooser.hidden = answers === 1;
  if (which.children.length !== answers) replace(which, Array.from({ length: answers }, (_, i) => el("option", { value: String(i) }, `${i + 1} of ${answers}`)));
  which.value = String(answer);
}

function drawTokens(strip, detail, funnel, app, state, view) {
  const shown = `${view.request} ${view.answer}`;
  if (state.shown !== shown) [state.shown, state.chosen] = [shown, null];
  const open = view.tokens.find((t) => String(t.index) === state.chosen);
  if (open?.step !== undefined && open.step !== app.selection.current.step) state.chosen = null; // its step is not selected any more
  const hovered = app.selection.hovered.step ?? app.selection.current.step;
  const signature = JSON.stringify([shown, view.tokens.length, view.left_out, view.texts, hovered, state.chosen, view.tokens.at(-1)?.logprob, view.tokens[0]?.ms_since_last]);
  if (signature === state.drawn) return;
  state.drawn = signature;
  const times = view.tokens.filter((t) => t.index > 0 && t.ms_since_last !== undefined).map((t) => t.ms_since_last).sort((a, b) => a - b);
  const usual = times[Math.floor(times.length / 2)] ?? 1;
  drawStrip(strip, view.tokens.map((token) => described(token, usual, hovered, state)), {
    choose: (index) => {
      const token = state.view.tokens.find((t) => String(t.index) === index);
      const open = state.chosen === index && (token?.step === undefined || token.step === app.selection.current.step);
      state.chosen = open ? null : index;
      state.drawn = "";
      if (token?.step !== undefined) app.selection.set({ step: state.chosen === null ? null : token.step, request: state.view.request });
      app.changed(); // a step may have several of the tokens
    },
    over: (index) => app.selection.hover({ step: state.view.tokens.find((t) => String(t.index) === index)?.step ?? null }),
    out: () => app.selection.hover({}),
  }, `Tokens of ${view.name}`);
  state.view = view;
  explain(detail, funnel, view, state.chosen);
}

function described(token, usual, hovered, state) {
  const late = token.ms_since_last === undefined ? 0 : Math.min(14, 3 * (token.ms_since_last / usual));
  const surprise = token.logprob === undefined ? 0 : Math.min(60, -token.logprob * 14);
  const text = token.text === undefined ? String(token.index + 1) : visible(token.text);
  return {
    key: token.index, text, paint: "stage-prefill", vars: { tint: `${surprise}%` },
    className: token.step !== undefined && token.step === hovered ? "linked" : "",
    pressed: state.chosen === String(token.index),
    title: [`token ${token.index + 1}`, token.ms_since_last === undefined ? "" : `${duration(token.ms_since_last)} after the one before`, token.logprob === undefined ? "" : `probability ${percent(Math.exp(token.logprob))}`].filter(Boolean).join(", "),
    children: lateBar(late),
  };
}

function lateBar(height) {
  const bar = el("span", { class: "late", data: { paint: "stage-decode" }, aria: { hidden: "true" } });
  bar.style.setProperty("--late", `${height}px`);
  return bar;
}

function explain(host, funnel, view, index) {
  const token = view.tokens.find((t) => String(t.index) === index);
  host.hidden = !token;
  if (!token) return;
  const rows = [
    ["id", token.id], ["in step", token.step], ["since the token before", duration(token.ms_since_last)],
    ["probability, before any filter", token.logprob === undefined ? null : percent(Math.exp(token.logprob))],
    ["surprise", token.logprob === undefined ? null : `${digits(-token.logprob / Math.LN2)} bits`],
  ].filter(([, value]) => value !== null && value !== undefined && value !== "–");
  replace(host,
    el("h4", {}, `Token ${token.index + 1}${token.text === undefined ? "" : `: ${JSON.stringify(token.text)}`}`),
    el("div", { class: "sides" },
      el("dl", { class: "timings" }, rows.map(([name, value]) => [el("dt", {}, name), el("dd", {}, String(value))])),
      token.top?.length ? alternatives(token) : null),
    view.funnel ? funnel.of(view.request, view.answer, token) : null);
}

function alternatives(token) {
  const list = el("ol", {}, token.top.map(([id, text, logprob]) => {
    const row = el("li", { class: (id ?? text) === (id === null ? token.text : token.id) || text === token.text ? "chosen" : null },
      el("span", {}, visible(text)), el("span", {}, percent(Math.exp(logprob))), el("span", { class: "bar-of" }));
    row.lastChild.style.setProperty("--share", percent(Math.exp(logprob)).replace(" ", ""));
    return row;
  }));
  return el("div", { class: "funnel" }, el("div", { class: "stage" }, el("div", { class: "quiet" }, "the likeliest, before any filter", glyph("measured")), list));
}
