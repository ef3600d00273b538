// Names beside dots: each at one of a few places around its dot, where it covers nothing; else left out.

const LETTER = 6.1; // about the width of one in the figures' small type
const LINE = 12;
const GAP = 4;

/**
 * Where names go. `wanted`: `{x, y, r, text}`, the most important first; `dots`: `{x, y, r}` that no name may cover;
 * `sides`: the left and right end of the picture. Gives those that have a place, with `at`: `[left, middle]`.
 */
export function placed(wanted, dots, [left, right]) {
  const taken = dots.map(({ x, y, r }) => [x - r, y - r, x + r, y + r]);
  const found = [];
  for (const label of wanted) {
    const box = places(label).find(([x0, y0, x1, y1]) => x0 >= left && x1 <= right && y0 >= 0 && !taken.some((other) => overlap([x0, y0, x1, y1], other)));
    if (!box) continue;
    taken.push(box);
    found.push({ ...label, at: [box[0], (box[1] + box[3]) / 2] });
  }
  return found;
}

/** Boxes around a dot: right, left, above, below, and the corners. */
function places({ x, y, r, text }) {
  const w = text.length * LETTER;
  const at = (x0, middle) => [x0, middle - LINE / 2, x0 + w, middle + LINE / 2];
  const [far, up] = [r + GAP, r + LINE / 2 + 1];
  return [
    at(x + far, y), at(x - far - w, y), at(x - w / 2, y - up), at(x - w / 2, y + up),
    at(x + far, y + up), at(x + far, y - up), at(x - far - w, y + up), at(x - far - w, y - up),
  ];
}

const overlap = (a, b) => a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3];
