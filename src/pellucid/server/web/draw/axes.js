// Axes on a canvas: quiet lines at round numbers, units at the last of them.

import { line, write } from "./surface.js";

/** A vertical axis at the left, with a hairline across for each tick. `format(value)` gives words. */
export function yAxis(ctx, scale, { left, right, format, paints, most = 4, unit = "" }) {
  const ticks = scale.ticks(most);
  ticks.forEach((tick, i) => {
    const y = Math.round(scale(tick)) + 0.5;
    line(ctx, left, y, right, y, paints.grid);
    const words = format(tick) + (i === ticks.length - 1 && unit ? ` ${unit}` : "");
    write(ctx, words, left - 6, y, { paint: paints.quiet, align: "right" });
  });
}

/** A horizontal axis below `y`: ticks and words. */
export function xAxis(ctx, scale, { y, top, format, paints, most = 6 }) {
  const [left, right] = scale.range;
  for (const tick of scale.ticks(most)) {
    const x = Math.round(scale(tick)) + 0.5;
    if (top !== undefined) line(ctx, x, top, x, y, paints.grid);
    line(ctx, x, y, x, y + 4, paints.rule);
    const align = x < left + 14 ? "left" : x > right - 20 ? "right" : "center";
    write(ctx, format(tick), align === "left" ? x - 2 : x, y + 13, { paint: paints.quiet, align });
  }
  line(ctx, left, y + 0.5, right, y + 0.5, paints.rule);
}

/** Words for seconds on an axis that is `span` seconds long. */
export function secondsFormat(span) {
  if (span < 0.002) return (t) => `${Math.round(t * 1e6)} µs`;
  if (span < 2) return (t) => `${Number((t * 1000).toPrecision(6))} ms`;
  return (t) => `${Number(t.toPrecision(6))} s`;
}
