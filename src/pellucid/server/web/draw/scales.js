// From values to places: linear and logarithmic scales, and ticks at round numbers.

/** A linear scale: `scale(value)` is a place, `scale.invert(place)` a value. */
export function linear([from, to], [left, right]) {
  const span = to - from || 1;
  const scale = (value) => left + ((value - from) / span) * (right - left);
  scale.invert = (place) => from + ((place - left) / (right - left || 1)) * span;
  scale.domain = [from, to];
  scale.range = [left, right];
  scale.ticks = (most = 6) => linearTicks(from, to, most);
  return scale;
}

/** A logarithmic scale; values at or below 0 are put at its beginning. */
export function log([from, to], [left, right]) {
  const low = Math.log10(from);
  const span = Math.log10(to) - low || 1;
  const scale = (value) => left + ((Math.log10(Math.max(value, from * 1e-6)) - low) / span) * (right - left);
  scale.invert = (place) => 10 ** (low + ((place - left) / (right - left || 1)) * span);
  scale.domain = [from, to];
  scale.range = [left, right];
  scale.ticks = () => logTicks(from, to);
  return scale;
}

/** The round step (1, 2 or 5 times a power of ten) that divides `span` into at most `most` parts. */
export function niceStep(span, most) {
  if (!(span > 0)) return 1;
  const raw = span / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(raw));
  const factor = [1, 2, 5, 10].find((f) => f * power >= raw * (1 - 1e-9));
  return factor * power;
}

function linearTicks(from, to, most) {
  const step = niceStep(to - from, most);
  const ticks = [];
  for (let i = Math.ceil(from / step - 1e-9); i * step <= to + step * 1e-9; i += 1) {
    ticks.push(Number((i * step).toPrecision(12)));
    if (ticks.length > 100) break;
  }
  return ticks;
}

function logTicks(from, to) {
  const ticks = [];
  for (let power = Math.ceil(Math.log10(from) - 1e-9); 10 ** power <= to * (1 + 1e-9); power += 1) {
    ticks.push(10 ** power);
  }
  return ticks;
}

/** The end of an axis from 0 that holds `value` and ends at a round number. */
export function niceEnd(value, most = 5) {
  if (!(value > 0)) return 1;
  const step = niceStep(value, most);
  return Number((Math.ceil(value / step - 1e-9) * step).toPrecision(12));
}

/** The powers of ten around the positive values; [0.1, 10] where there are none. */
export function decades(values) {
  const positive = values.filter((value) => value > 0 && Number.isFinite(value));
  if (!positive.length) return [0.1, 10];
  const low = 10 ** Math.floor(Math.log10(Math.min(...positive)));
  const high = 10 ** Math.ceil(Math.log10(Math.max(...positive)));
  return [low, high > low ? high : low * 10];
}

/** Round values (1, 2 and 5 times powers of ten) from the last at or below the least of the positive `values` to the first at
 * or above the greatest: a logarithmic axis of a decade or two. [0.1, 1] where there are none. */
export function roundSteps(values) {
  const positive = values.filter((value) => value > 0 && Number.isFinite(value));
  if (!positive.length) return [0.1, 1];
  const [least, greatest] = [Math.min(...positive) * (1 + 1e-9), Math.max(...positive) * (1 - 1e-9)];
  const steps = [];
  for (let power = Math.floor(Math.log10(least)); ; power += 1) {
    for (const factor of [1, 2, 5]) {
      const step = Number((factor * 10 ** power).toPrecision(12));
      if (step <= least) steps.length = 0;
      steps.push(step);
      if (step >= greatest && steps.length > 1) return steps;
    }
  }
}
