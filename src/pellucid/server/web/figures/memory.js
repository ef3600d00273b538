// Figure 11: one bar to the machine's limit: the forecast above, what is resident below.

import { el, replace, say, svg } from "../core/dom.js";
import { bytes, digits, duration, num, percent } from "../core/format.js";
import { linear } from "../draw/scales.js";
import { Picture } from "../draw/vector.js";
import { kvPerToken } from "../model/formulas.js";

const OTHER_PAINT = "cache";
const LETTER = 5.9; // about the width of one in the figures' small type

export const memoryAccount = {
  name: "memory",
  number: 11,
  title: "Memory account",
  question: "What is resident, and was the forecast right?",
  wide: true,

  view(app) {
    const { about } = app.store;
    if (!about) return app.nothing;
    const formats = weightFormats(about.tensors ?? []);
    const pages = app.step?.pages ?? null;
    const per = about.cache.bytes_per_page;
    const pool = about.cache.n_pages * per;
    const used = pages ? (pages.owned + pages.cached) * per : 0;
    const weights = formats.reduce((sum, f) => sum + f.bytes, 0);
    const resident = about.process?.rss_bytes ?? null;
    return {
      unit: "bytes",
      step: app.selection.current.step,
      machine_bytes: about.machine.memory_bytes,
      resident_bytes: resident,
      weights: formats,
      weights_bytes: weights,
      load_ms: formats.every((f) => f.load_ms !== null) ? formats.reduce((sum, f) => sum + f.load_ms, 0) : null,
      kv: { used_bytes: used, free_bytes: pool - used, pool_bytes: pool, pages: about.cache.n_pages, available_pages: about.cache.n_pages - (pages?.owned ?? 0), page_size: about.cache.page_size, dtype: about.cache.dtype },
      forecast_bytes: weights + pool,
      other_bytes: resident === null ? null : resident - weights - used,
      model: { layers: about.model.layers, kv_heads: about.model.kv_heads, head_size: about.model.head_size, context: about.model.context, kv_bytes_per_token: about.model.kv_bytes_per_token },
      bytes_per_token: about.cache.bytes_per_token ?? { [about.cache.dtype]: about.model.kv_bytes_per_token },
      formula: kvPerToken(about.model),
      limits: about.limits ?? null,
    };
  },

  sentence(view) {
    const said = ["The weights take ", num(bytes(view.weights_bytes), "predicted"), ...(view.load_ms === null ? [] : [" (loaded in ", num(duration(view.load_ms)), ")"]), " and the KV pool ", num(bytes(view.kv.pool_bytes), "predicted"),
      " at most, ", num(bytes(view.forecast_bytes), "predicted"), " together"];
    if (view.resident_bytes !== null) said.push(". Resident are ", num(bytes(view.resident_bytes)), ", ", num(percent(view.resident_bytes / view.machine_bytes)), " of this machine's ", num(bytes(view.machine_bytes)));
    if (view.resident_bytes !== null && view.resident_bytes < view.forecast_bytes) said.push(": a page of the pool becomes memory when it is first written, and ", num(percent(view.kv.used_bytes / view.kv.pool_bytes)), " of it holds something");
    return [...said, ". A token's keys and values: ", view.formula, "."];
  },

  table(view) {
    return {
      caption: "Memory by what it is for",
      columns: [{ name: "what", number: false }, { name: "bytes" }, { name: "in words", number: false }, { name: "mark", number: false }, { name: "loading", unit: "ms", mark: "measured" }],
      rows: [
        ...view.weights.map((f) => [`weights, ${f.format} (${f.tensors})`, f.bytes, bytes(f.bytes), "predicted", f.load_ms]),
        ["KV pages in use", view.kv.used_bytes, bytes(view.kv.used_bytes), "measured", null],
        ["KV pages free", view.kv.free_bytes, bytes(view.kv.free_bytes), "measured", null],
        ["resident, all", view.resident_bytes, bytes(view.resident_bytes), "measured", null],
        ["this machine", view.machine_bytes, bytes(view.machine_bytes), "measured", null],
      ],
    };
  },

  mount(body, app, redraw) {
    const picture = new Picture(app, "Memory: forecast above, resident below");
    const what = sliders(redraw);
    const warning = el("p", { class: "detail" });
    body.append(picture.element, warning);
    return {
      controls: what.controls,
      draw(view, width) {
        what.settle(view);
        const plan = forecast(view, what.values);
        draw(picture, view, plan, width);
        warn(warning, view, plan, what.values);
      },
      legend: [document.createTextNode("All else: code, tokenizer, activations, what the interpreter takes.")],
    };
  },
};

function weightFormats(tensors) {
  const found = new Map();
  for (const { format, bytes: size, load_ms: ms = null } of tensors) {
    const entry = found.get(format) ?? { format, bytes: 0, tensors: 0, load_ms: null };
    if (ms !== null) entry.load_ms = (entry.load_ms ?? 0) + ms;
    entry.bytes += size;
    entry.tensors += 1;
    found.set(format, entry);
  }
  return [...found.values()].sort((a, b) => b.bytes - a.bytes);
}

/** What the sliders would take: context and answers at once, and the cache's format. */
function sliders(redraw) {
  const values = { context: null, answers: null, dtype: null };
  let settledFor = "";
  const slide = (name, words, max) => {
    const shown = el("output", {}, "");
    const input = el("input", { type: "range", min: "0", max: String(max), step: "1", on: { input: () => {
      values[name] = 2 ** Number(input.value);
      say(shown, digits(values[name]));
      redraw();
    } } });
    return { input, shown, node: el("label", {}, words, input, shown) };
  };
  const context = slide("context", "context of each", 17);
  const answers = slide("answers", "answers at once", 10);
  const dtype = el("select", { aria: { label: "Format of keys and values" }, on: { change: () => ((values.dtype = dtype.value), redraw()) } });
  return {
    values,
    controls: ["What if: ", context.node, answers.node, el("label", {}, "keys and values in", dtype)],
    settle(view) {
      const engine = JSON.stringify([view.limits, view.bytes_per_token, view.kv.dtype]);
      if (engine === settledFor) return;
      settledFor = engine;
      values.context = 2 ** Math.floor(Math.log2(Math.max(1, view.limits?.max_model_len ?? view.model.context)));
      values.answers = Math.max(1, 2 ** Math.floor(Math.log2(view.limits?.max_num_seqs ?? 1)));
      const types = Object.keys(view.bytes_per_token);
      values.dtype = types.includes(view.kv.dtype) ? view.kv.dtype : types[0];
      replace(dtype, types.map((name) => el("option", { value: name }, name)));
      for (const [slider, name] of [[context, "context"], [answers, "answers"]]) {
        slider.input.value = String(Math.log2(values[name]));
        say(slider.shown, digits(values[name]));
      }
      dtype.value = values.dtype;
    },
  };
}

function forecast(view, { context, answers, dtype }) {
  const perToken = view.bytes_per_token[dtype];
  const kv = perToken * context * answers;
  return { perToken, kv, total: view.weights_bytes + kv };
}

function warn(host, view, plan, { context, answers, dtype }) {
  const left = view.machine_bytes - view.weights_bytes;
  const asked = `${digits(answers)} answer${answers === 1 ? "" : "s"} of ${digits(context)} tokens in ${dtype} take ${bytes(plan.kv)} ○`;
  if (left < 0) say(host, `The weights do not fit: they take ${bytes(view.weights_bytes)} of ${bytes(view.machine_bytes)}. A smaller format of them might.`);
  else if (plan.kv > left) say(host, `This context does not fit: ${asked}, and ${bytes(left)} are left beside the weights. At most ${digits(Math.floor(left / plan.perToken / answers))} tokens each would.`);
  else say(host, `It fits: ${asked}; with the weights that is ${bytes(plan.total)} of this machine's ${bytes(view.machine_bytes)}. The pool that was made holds ${digits(view.kv.pages * view.kv.page_size)} tokens. ${room(view, context)}`);
  host.classList.toggle("bad", plan.kv > left);
}

/** How many more answers the pool has room for now, and what else bounds them. */
function room(view, context) {
  const { kv, limits } = view;
  const more = Math.floor(kv.available_pages / Math.ceil(context / kv.page_size));
  const places = limits?.max_num_seqs ? ` At most ${digits(limits.max_num_seqs)} are decoded at once.` : "";
  return `${view.step === null ? "Beside those that run now" : `After step ${view.step}`} it ${view.step === null ? "has" : "had"} room for ${digits(more)} more of ${digits(context)} tokens.${places}`;
}

function draw(picture, view, plan, width) {
  const rows = [
    { y: 78, label: "forecast ○", parts: [["weights", view.weights_bytes, "bytes-weights-read"], ["keys and values asked for", plan.kv, "bytes-kv-read"]], mark: "predicted" },
    { y: 142, label: "resident ●", parts: [["weights", view.weights_bytes, "bytes-weights-read"], ["keys and values so far", view.kv.used_bytes, "bytes-kv-read"], ["all else", Math.max(0, view.other_bytes ?? 0), OTHER_PAINT]], mark: "measured" },
  ];
  const [forecastTotal, residentTotal] = rows.map(total);
  const most = Math.max(forecastTotal, residentTotal);
  const end = Math.max(view.machine_bytes, most);
  const whole = linear([0, end], [0, width - 1]);
  const near = linear([0, most], [0, width - 1]);
  picture.render(width, 194, [rows.map((r) => r.parts), end], () => [
    machine(rows[0], view, whole, near, most, width),
    ...rows.map((row) => bar(picture, row, near, width)),
  ]);
}

const total = ({ parts }) => parts.reduce((sum, [, size]) => sum + size, 0);

/** All of the machine's memory, what is asked of it, and where the bars below are a part of it. */
function machine(forecastRow, view, whole, near, most, width) {
  const limit = whole(view.machine_bytes);
  let at = 0;
  const parts = forecastRow.parts.map(([, size, paint]) => {
    const left = whole(at);
    at += size;
    return svg("rect", { class: "paint", data: { paint }, x: left, y: 18, width: Math.max(0.5, whole(at) - left), height: 10 });
  });
  const share = percent(at / view.machine_bytes);
  return svg("g", { aria: { hidden: "true" } },
    svg("text", { x: 0, y: 11 }, `this machine ●: ${bytes(view.machine_bytes)}`),
    svg("text", { x: width - 1, y: 11, "text-anchor": "end" }, `${share} of it asked for`),
    svg("rect", { class: "paint", data: { paint: "free" }, x: 0, y: 18, width: limit, height: 10 }),
    parts,
    svg("line", { class: "stroke", data: { paint: "bad" }, "stroke-width": 2, x1: limit, x2: limit, y1: 14, y2: 32 }),
    svg("path", { class: "rule", d: `M0 31 V40 M${whole(most)} 31 L${near(most)} 60` }));
}

/** One bar and, below it, what its parts are. */
function bar(picture, row, x, width) {
  const { y, label, parts, mark } = row;
  let at = 0;
  let free = 0;
  const all = total(row);
  const nodes = parts.filter(([, size]) => size > 0).map(([name, size, paint]) => {
    const left = x(at);
    at += size;
    const node = svg("rect", { class: "paint", data: { paint }, x: left, y, width: Math.max(x(at) - left - 0.75, 1), height: 22 });
    const words = `${width < 520 ? name.replace("keys and values", "KV") : name} ${bytes(size)}`;
    const [from, room] = [Math.min(Math.max(left, free), width - words.length * LETTER - 10), words.length * LETTER + 24];
    free = from + room;
    return [
      picture.mark(node, {
        key: `${label} ${name}`,
        tip: () => ({ title: name, paint, rows: [["size", bytes(size), name === "weights" ? "predicted" : mark], ["of the bar", percent(size / all)]] }),
      }),
      svg("rect", { class: "paint", data: { paint }, x: from, y: y + 28, width: 7, height: 7, aria: { hidden: "true" } }),
      svg("text", { x: from + 10, y: y + 35, aria: { hidden: "true" } }, words),
    ];
  });
  return svg("g", {}, svg("text", { class: "strong", x: 0, y: y - 5 }, `${label}: ${bytes(all)}`), nodes);
}
