// Columns: one for each step, under a common axis of steps; figures 4 and 7.

import { line, write } from "./surface.js";

/** How many columns fit. */
export const fitting = (width, left = 52, right = 48) => Math.max(8, Math.floor((width - left - right) / 7));

/** Places of `n` columns between `left` and `right`: the newest at the right, none wider than 36. */
export function columns(n, left, right) {
  const pitch = Math.min(36, (right - left) / Math.max(n, 1));
  const gap = pitch > 5 ? 1.5 : pitch > 2.5 ? 0.75 : 0;
  return Array.from({ length: n }, (_, i) => ({ x: right - (n - i) * pitch, w: pitch - gap, mid: right - (n - i) * pitch + (pitch - gap) / 2 }));
}

/** The numbers of the steps, as many as have room. */
export function stepAxis(ctx, ids, places, y, paints) {
  if (!ids.length) return;
  line(ctx, places[0].x, y + 0.5, places.at(-1).x + places.at(-1).w, y + 0.5, paints.rule);
  let free = -Infinity;
  ids.forEach((id, i) => {
    const { mid } = places[i];
    const round = ids.length < 12 || id % (ids.length > 60 ? 20 : 5) === 0;
    if (!round || mid < free) return;
    write(ctx, String(id), mid, y + 12, { paint: paints.quiet, align: "center" });
    free = mid + 44;
  });
  write(ctx, "step", places[0].x - 6, y + 12, { paint: paints.quiet, align: "right" });
}

/** A frame around the selected column and a shade behind the one that is pointed at. */
export function markColumns(ctx, ids, places, top, bottom, { selection, paints }) {
  const at = (id) => ids.indexOf(id);
  const hovered = at(selection.hovered.step);
  const chosen = at(selection.current.step);
  if (hovered >= 0) {
    ctx.fillStyle = paints.grid;
    ctx.fillRect(places[hovered].x - 1, top, places[hovered].w + 2, bottom - top);
  }
  if (chosen >= 0) {
    ctx.strokeStyle = paints.of("accent");
    ctx.lineWidth = 1.5;
    ctx.strokeRect(places[chosen].x - 1.5, top + 0.5, places[chosen].w + 3, bottom - top);
  }
}
