// Figure 10: a row per round of guessing: accepted, rejected, corrected.

import { key, num, percent, plural, digits, duration } from "../core/format.js";
import { requestPaint, shortName } from "../core/names.js";
import { legend } from "../draw/legend.js";
import { Plot } from "../draw/plot.js";
import { write } from "../draw/surface.js";
import { acceptance, netTime, roundsOf } from "../model/rounds.js";
import { around } from "../model/steps.js";

const MOST_ROWS = 24;
const ROW = 14;
const RULES = {
  exact: "By the exact rule a guess is accepted if it is the token that the model chooses there: p and q decide nothing, and no answer changes.",
  rejection: "By rejection sampling a guess is accepted with the chance min(1, p / q), else a token is drawn from what p has more than q: which tokens come may change, how often each comes does not.",
};

export const speculationLadder = {
  name: "speculation",
  number: 10,
  title: "Speculation ladder",
  question: "Did guessing pay?",
  wide: true,

  view(app) {
    const { request } = app.selection.current;
    const rounds = roundsOf(app.stepsIn, request);
    const feature = app.store.about?.features?.speculation;
    if (rounds.length) {
      return {
        unit: "tokens", request, name: request === null ? null : shortName(request), paint: request === null ? null : requestPaint(request),
        rule: feature?.rule ?? null, method: feature?.method ?? null, rounds, by_position: acceptance(rounds), time_ms: netTime(app.stepsIn, request, app.store.steps), selected: app.selection.current.step,
      };
    }
    const none = { rounds: [], by_position: [] };
    if (!app.store.about) return { ...app.nothing, ...none };
    if (feature === null || feature === undefined) return { ...none, empty: "off", why: "No draft guesses tokens in this engine: every answer token is computed by a step of its own. Start the server with --speculative-method ngram (the text itself is looked up), draft (a smaller model guesses) or early-exit (the first layers do)." };
    if (typeof feature === "string") return { ...none, empty: "off", why: feature };
    if (app.selection.current.time !== null) return { ...none, empty: "nothing then", why: "Nothing was guessed in the time that is selected. Select another time, or none." };
    const all = app.selection.current.request === null ? [] : roundsOf(app.store.steps, null);
    if (all.length) return { ...none, empty: "no traffic", why: `Nothing was guessed for ${shortName(app.selection.current.request)}, or its steps have left the window; for all others together there were ${plural(all.length, "round")}. With nothing selected they are shown.` };
    return { ...none, empty: "no traffic", why: "Guessing is on, and no round of it is in the window." };
  },

  sentence(view) {
    const drafted = view.rounds.reduce((sum, r) => sum + r.drafted, 0);
    const accepted = view.rounds.reduce((sum, r) => sum + r.accepted, 0);
    const each = (accepted + view.rounds.length) / view.rounds.length;
    const said = [
      ...(view.request === null ? [] : [key(view.name, view.paint), ": "]), num(percent(accepted / drafted)), ` of ${plural(drafted, "guess", "guesses")} were right: a pass of the model gave `,
      num(`${digits(each)} tokens`), " where it would have given one",
    ];
    const time = view.time_ms;
    if (time) said.push(`; guessing ${time.net >= 0 ? "saved" : "cost"} about `, num(duration(Math.abs(time.net)), "estimated"), view.request === null ? " in all" : ` for ${view.name}, by its part of the steps' guesses`);
    else said.push("; no step without guesses is there to compare with, so that what it saved is not known");
    return [...said, ". ", view.rule in RULES ? RULES[view.rule] : ""];
  },

  table(view) {
    return {
      caption: "Rounds of guessing",
      columns: [{ name: "step" }, { name: "request", number: false }, { name: "guessed" }, { name: "accepted" }, { name: "p of each", number: false }, { name: "q of each", number: false }, { name: "drafting", unit: "ms", mark: "measured" }, { name: "forward", unit: "ms", mark: "measured" }],
      rows: view.rounds.map((r) => [r.step, r.name, r.drafted, r.accepted, r.checks.map(({ p }) => digits(p)).join(", "), r.checks.map(({ q }) => (q === null ? "–" : digits(q))).join(", "), r.draft_ms, r.forward_ms]),
    };
  },

  mount(body, app, redraw) {
    const plot = new Plot(app, "Rounds of guessing, newest below");
    plot.onFocusMark = redraw;
    body.append(plot.element);
    return {
      draw: (view, width) => draw(plot, app, view, width),
      legend: legend(["kind-verify", "accepted"], ["bad", "rejected"], ["stage-decode", "the model's own token"]),
    };
  },
};

function draw(plot, app, view, width) {
  const rounds = around(view.rounds.map((round) => ({ ...round, id: round.step })), MOST_ROWS, view.selected);
  const longest = Math.max(...rounds.map((r) => r.drafted)) + 1;
  const side = Math.min(200, width * 0.35);
  const cell = Math.min(26, (width - side - 70) / longest);
  const marks = rounds.flatMap((round, i) => roundMarks(app, view, round, i, cell));
  const height = Math.max(rounds.length, view.by_position.length + 2) * ROW + 22;
  plot.render(width, height, marks, (ctx) => {
    write(ctx, rounds.length < view.rounds.length ? `step; ${rounds.length} of ${view.rounds.length} rounds` : "step", 0, 8, { paint: app.paints.quiet });
    rounds.forEach((r, i) => write(ctx, String(r.step), 0, 18 + i * ROW + 6, r.step === view.selected ? { paint: app.paints.ink, weight: 700 } : { paint: app.paints.quiet }));
    for (const mark of marks) {
      ctx.fillStyle = app.paints.of(mark.paint);
      ctx.fillRect(mark.x, mark.y, mark.w - 1.5, mark.h - 2);
    }
    paintAcceptance(ctx, app.paints, view.by_position, width - side + 20, side - 20);
    if (view.time_ms) write(ctx, `net ${view.time_ms.net >= 0 ? "gain" : "loss"} ≈ ${duration(Math.abs(view.time_ms.net))}`, width, 18 + (view.by_position.length + 0.5) * ROW + 6, { paint: app.paints.ink, align: "right" });
  });
}

function roundMarks(app, view, round, row, cell) {
  return Array.from({ length: round.drafted + 1 }, (_, i) => {
    const fate = i < round.accepted ? "accepted" : i === round.accepted ? "own" : "rejected";
    const paint = { accepted: "kind-verify", own: "stage-decode", rejected: "bad" }[fate];
    return {
      key: `${round.step} ${round.sequence} ${i}`, x: 52 + i * cell, y: 18 + row * ROW, w: cell, h: ROW, paint,
      over: { step: round.step, request: round.request }, choose: () => app.selection.set({ step: round.step, request: round.request }),
      tip: () => cellTip(view, round, i, fate, paint),
    };
  });
}

/** A cell of a round in words: what became of the guess in its place, by which p, q and rule. */
function cellTip(view, round, place, fate, paint) {
  const check = round.checks[place] ?? null;
  const corrects = fate === "own" && place < round.drafted;
  const title = { accepted: "a guess, accepted", own: corrects ? "the guess here was rejected: the model's own token in its place" : "the model's own token, after all guesses were right", rejected: "a guess that came to nothing" }[fate];
  return {
    title, paint,
    rows: [
      ["round", `step ${round.step}, ${round.name}`], ["accepted", `${round.accepted} of ${round.drafted}`],
      ...(check === null ? [] : chances(view, check)),
      ["drafting", duration(round.draft_ms), "measured"], ["forward pass", duration(round.forward_ms), "measured"],
    ],
    note: noteOf(view, fate, corrects, check, place < round.drafted),
  };
}

/** What decided, as far as anything was drawn. */
function chances(view, { p, q, drawn }) {
  return [
    ["p, the model's chance of the guess", percent(p), "measured"],
    ["q, the chance it was guessed with", q === null ? "none: it was looked up" : percent(q), ...(q === null ? [] : ["measured"])],
    ...(drawn === null ? [] : [["accepted with the chance min(1, p / q)", percent(Math.min(1, p / (q ?? 1)))], ["drawn", digits(drawn)]]),
  ];
}

function noteOf(view, fate, corrects, check, guessed) {
  const said = [];
  if (fate === "rejected") said.push("A guess before it was wrong, so that it was not looked at.");
  else if (corrects && view.rule === "rejection") said.push("The number drawn was not below p / q: the token was drawn from what p has more than q.");
  else if (corrects) said.push("The model chose another token.");
  if (view.rule in RULES) said.push(RULES[view.rule]);
  if (guessed && fate !== "rejected" && check === null) said.push("p and q are told while somebody watches, of the first guesses of a step.");
  return said.join(" ");
}

function paintAcceptance(ctx, paints, shares, left, width) {
  write(ctx, left > 300 ? "accepted, by position" : "accepted", left, 8, { paint: paints.quiet });
  shares.forEach((share, i) => {
    const y = 18 + i * ROW;
    ctx.fillStyle = paints.grid;
    ctx.fillRect(left + 18, y, width - 60, ROW - 3);
    ctx.fillStyle = paints.of("kind-verify");
    ctx.fillRect(left + 18, y, (width - 60) * share, ROW - 3);
    write(ctx, String(i + 1), left, y + 6, { paint: paints.quiet });
    write(ctx, percent(share), left + width, y + 6, { paint: paints.ink, align: "right" });
  });
}
