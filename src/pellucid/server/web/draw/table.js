// The table view of a figure: the numbers that are drawn, with their marks at the columns' heads.

import { el, replace } from "../core/dom.js";
import { digits, glyph } from "../core/format.js";

export const MOST_ROWS = 300;

/** Fills `host` with `{caption, columns: [{name, unit, mark}], rows}`. Numbers are right-aligned. */
export function drawTable(host, { caption, columns, rows }) {
  const shown = rows.slice(-MOST_ROWS);
  const left = rows.length - shown.length;
  replace(host,
    el("div", { class: "scroll", tabindex: "0", role: "region", aria: { label: caption } },
      el("table", {},
        el("caption", {}, left ? `${caption}: the last ${MOST_ROWS} of ${rows.length}; JSON has all` : caption),
        el("thead", {}, el("tr", {}, columns.map((column) => head(column)))),
        el("tbody", {}, shown.map((row) => el("tr", {}, row.map((value, i) => cell(value, columns[i]))))))));
}

function head({ name, unit, mark, number }) {
  return el("th", { scope: "col", class: number === false ? null : "number" },
    name, unit ? el("span", { class: "unit" }, ` ${unit}`) : null, mark ? glyph(mark) : null);
}

function cell(value, { number }) {
  if (number === false || typeof value === "string") return el("td", { class: number === false ? null : "number" }, value ?? "–");
  return el("td", { class: "number" }, digits(value ?? null, 4));
}
