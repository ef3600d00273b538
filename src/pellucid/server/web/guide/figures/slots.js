// The same requests in fixed batches and in continuous ones: who has a place in which round.

import { el, svg } from "../../core/dom.js";
import { label, picture } from "../draw.js";
import { frame } from "../frame.js";
import { animate } from "../player.js";

const PLACES = 4;
const REQUESTS = [[0, 6], [0, 16], [0, 4], [0, 9], [2, 5], [3, 12], [5, 3], [8, 7], [9, 5], [11, 4]]; // when each came, how many tokens it wants

export function slots(host) {
  const figure = frame(host, "What becomes of a place whose answer has ended?", "simulated");
  const fixed = placed(REQUESTS, PLACES, false), going = placed(REQUESTS, PLACES, true);
  const rounds = Math.max(...fixed.map((one) => one.end));
  const frames = Array.from({ length: rounds + 1 }, (_, now) => ({
    says: said(now, summary(fixed, now), summary(going, now)),
    picture: (w) => el("div", {}, lanes("collected, run together, handed out", fixed, now, rounds, w), lanes("decided anew in every round", going, now, rounds, w)),
  }));
  animate(figure, frames, { every: 420, first: rounds });
}

/** For each request `{place, start, end}` in rounds. Fixed batches begin when all answers of the last one have ended; otherwise a
 * place goes to whoever has waited longest, in the round after it fell free. */
export function placed(requests, places, continuous) {
  const free = Array.from({ length: places }, () => 0);
  const found = [];
  for (const [i, [came, tokens]] of requests.entries()) {
    if (!continuous && i % places === 0) free.fill(Math.max(...free, ...requests.slice(i, i + places).map(([when]) => when)));
    const place = continuous ? free.indexOf(Math.min(...free)) : i % places;
    const start = Math.max(came, free[place]);
    free[place] = start + tokens;
    found.push({ place, came, start, end: start + tokens });
  }
  return found;
}

/** Answers that have ended, requests that wait, and rounds of places that stood empty while somebody waited or ran. */
export function summary(found, now) {
  const done = found.filter((one) => one.end <= now).length;
  const waiting = found.filter((one) => one.came <= now && one.start > now).length;
  const used = found.reduce((all, one) => all + Math.max(0, Math.min(now, one.end) - one.start), 0);
  return { done, waiting, empty: PLACES * Math.min(now, Math.max(...found.map((one) => one.end))) - used };
}

function said(now, fixed, going) {
  if (now === 0) return `${PLACES} places, and ${REQUESTS.length} requests that come when they like, each for another number of tokens. One column is one round.`;
  const what = ({ done, waiting, empty }) => `${done} answers done, ${waiting} waiting, ${empty} empty places paid for`;
  return `Round ${now}. Collected: ${what(fixed)}. Continuous: ${what(going)}.`;
}

function lanes(title, found, now, rounds, w) {
  const x = 8, each = (w - 16) / rounds, high = 20;
  const shown = found.filter((one) => one.start < now);
  return picture(w, 34 + PLACES * (high + 4), title, label(x, 14, title, { class: "strong" }),
    Array.from({ length: PLACES }, (_, i) => svg("rect", { x, y: 22 + i * (high + 4), width: w - 16, height: high, rx: 3, class: "slot" })),
    shown.map((one) => {
      const i = found.indexOf(one), width = (Math.min(now, one.end) - one.start) * each, y = 22 + one.place * (high + 4);
      return [svg("rect", { x: x + one.start * each, y, width: width - 1.5, height: high, rx: 3, class: "paint soft", "data-paint": `request-${i}` }),
        width > 14 ? label(x + one.start * each + 5, y + 14, "ABCDEFGHIJ"[i], { class: "strong" }) : null];
    }),
    now > 0 ? svg("line", { x1: x + now * each, x2: x + now * each, y1: 18, y2: 22 + PLACES * (high + 4), class: "rule" }) : null);
}
