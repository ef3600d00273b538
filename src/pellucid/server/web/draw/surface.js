// A canvas that is sharp on every screen, with small helpers for the lines and words of figures.

const FAMILY = 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif';

/** Sizes `canvas` to `width` x `height` CSS pixels and gives its cleared context. */
export function prepare(canvas, width, height) {
  const ratio = Math.min(window.devicePixelRatio || 1, 2);
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const ctx = canvas.getContext("2d");
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  ctx.clearRect(0, 0, width, height);
  return ctx;
}

/** Writes `text`; cut with an ellipsis at `max` pixels where that is given. */
export function write(ctx, text, x, y, { paint, align = "left", base = "middle", size = 11, max, weight = 400 }) {
  ctx.font = `${weight} ${size}px ${FAMILY}`;
  ctx.fillStyle = paint;
  ctx.textAlign = align;
  ctx.textBaseline = base;
  ctx.fillText(max === undefined ? text : fitted(ctx, text, max), x, y);
}

/** How wide `text` is. */
export function measure(ctx, text, size = 11, weight = 400) {
  ctx.font = `${weight} ${size}px ${FAMILY}`;
  return ctx.measureText(text).width;
}

function fitted(ctx, text, max) {
  if (ctx.measureText(text).width <= max) return text;
  let length = Math.min(text.length, Math.floor(max / 4));
  while (length > 0 && ctx.measureText(`${text.slice(0, length)}…`).width > max) length -= 1;
  return length > 0 ? `${text.slice(0, length)}…` : "";
}

/** A hairline. */
export function line(ctx, x0, y0, x1, y1, paint, { dash = [], width = 1 } = {}) {
  ctx.strokeStyle = paint;
  ctx.lineWidth = width;
  ctx.setLineDash(dash);
  ctx.beginPath();
  ctx.moveTo(x0, y0);
  ctx.lineTo(x1, y1);
  ctx.stroke();
  ctx.setLineDash([]);
}

/** A line through points, broken where a y is null. */
export function path(ctx, points, paint, { dash = [], width = 1.5 } = {}) {
  ctx.strokeStyle = paint;
  ctx.lineWidth = width;
  ctx.lineJoin = "round";
  ctx.setLineDash(dash);
  ctx.beginPath();
  let pen = false;
  for (const [x, y] of points) {
    if (y === null) {
      pen = false;
    } else {
      if (pen) ctx.lineTo(x, y);
      else ctx.moveTo(x, y);
      pen = true;
    }
  }
  ctx.stroke();
  ctx.setLineDash([]);
}

/** Diagonal lines over a rectangle: what is shared, or not accounted for. */
export function hatch(ctx, x, y, w, h, paint, gap = 4) {
  if (w <= 0 || h <= 0) return;
  ctx.save();
  ctx.beginPath();
  ctx.rect(x, y, w, h);
  ctx.clip();
  ctx.strokeStyle = paint;
  ctx.lineWidth = 1;
  ctx.beginPath();
  for (let offset = Math.floor((x - h) / gap) * gap; offset < x + w; offset += gap) {
    ctx.moveTo(offset, y + h);
    ctx.lineTo(offset + h, y);
  }
  ctx.stroke();
  ctx.restore();
}
