// Figure 11: one bar to the machine's limit: the forecast above, what is resident below.

import { el, replace, say, svg } from "../core/dom.js";
import { bytes, digits, duration, num, percent } from "../core/format.js";
import { linear } from "../draw/scales.js";
import { Picture } from "../draw/vector.js";
import { kvPerToken } from "../model/formulas.js";

const OTHER_PAINT = "quiet";
const ACTIVATIONS_PAINT = "bytes-activations";
const AS_THEY_ARE = "as they are";
const BITS = { f32: 32, f16: 16, q8_0: 8.5, q6_k: 6.5625, q4_0: 4.5, q2_k: 2.625 };
const LEAST_FORMAT = 0.02; // of all weights: what takes less is put together
const LABEL = 15; // a line of labels
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
    const { step, time } = app.selection.current;
    const then = step === null && time === null ? null : app.step;
    const pages = (then ?? app.store.steps.at(-1))?.pages ?? null;
    const per = about.cache.bytes_per_page;
    const pool = about.cache.n_pages * per;
    const used = pages ? (pages.owned + pages.cached) * per : 0;
    const weights = formats.reduce((sum, f) => sum + f.bytes, 0);
    const most = activations(about);
    const resident = about.process?.rss_bytes ?? null;
    return {
      unit: "bytes",
      step: then?.id ?? null,
      machine_bytes: about.machine.memory_bytes,
      resident_bytes: resident,
      weights: formats,
      weights_bytes: weights,
      load_ms: formats.every((f) => f.load_ms !== null) ? formats.reduce((sum, f) => sum + f.load_ms, 0) : null,
      kv: { used_bytes: used, free_bytes: pool - used, pool_bytes: pool, pages: about.cache.n_pages, available_pages: about.cache.n_pages - (pages?.owned ?? 0), page_size: about.cache.page_size, dtype: about.cache.dtype },
      activations_bytes: most,
      forecast_bytes: weights + pool + most,
      other_bytes: resident === null ? null : Math.max(0, resident - weights - used - most),
      formats: weightBits(about.tensors ?? []),
      model: { layers: about.model.layers, kv_heads: about.model.kv_heads, head_size: about.model.head_size, context: about.model.context, kv_bytes_per_token: about.model.kv_bytes_per_token },
      bytes_per_token: about.cache.bytes_per_token ?? { [about.cache.dtype]: about.model.kv_bytes_per_token },
      formula: kvPerToken(about.model),
      limits: about.limits ?? null,
    };
  },

  sentence(view) {
    const said = ["The weights take ", num(bytes(view.weights_bytes), "predicted"), ...(view.load_ms === null ? [] : [" (loaded in ", num(duration(view.load_ms)), ")"]), ", the KV pool ", num(bytes(view.kv.pool_bytes), "predicted"),
      " at most and a step's activations ", num(bytes(view.activations_bytes), "predicted"), ", ", num(bytes(view.forecast_bytes), "predicted"), " together"];
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
        ["activations of the largest step", view.activations_bytes, bytes(view.activations_bytes), "predicted", null],
        ["all else that is resident", view.other_bytes, bytes(view.other_bytes), "estimated", null],
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
      legend: [document.createTextNode("Activations: of the largest step that the limits allow, by the model's sizes. All else: code, tokenizer, what the interpreter takes, pages that were written once and are free. Dashed: pages of the pool that are free; one becomes memory when it is first written.")],
    };
  },
};

/** Bytes of the largest step's activations: two of the residual stream, queries, keys and values, the MLP's two, and a row of scores for each sequence, float32. */
function activations({ model, limits }) {
  if (!limits) return 0;
  const { hidden = 0, heads = 0, kv_heads: kv = 0, head_size: size = 0, ffn = 0, vocab = 0 } = model;
  return 4 * (limits.max_num_batched_tokens * (2 * hidden + (heads + 2 * kv) * size + 2 * ffn) + limits.max_num_seqs * vocab);
}

/** What the weights would take in other formats: matrices in so many bits a weight (scales included), vectors as they are. */
function weightBits(tensors) {
  const matrices = tensors.filter(({ shape }) => shape?.length > 1);
  const size = (list) => list.reduce((sum, t) => sum + t.bytes, 0);
  const rest = size(tensors) - size(matrices);
  const weights = matrices.reduce((sum, { shape }) => sum + shape.reduce((a, b) => a * b, 1), 0);
  return Object.fromEntries(Object.entries(BITS).map(([name, bits]) => [name, rest + (weights * bits) / 8]));
}

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
  const values = { context: null, answers: null, dtype: null, weights: AS_THEY_ARE };
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
  const weights = el("select", { on: { change: () => ((values.weights = weights.value), redraw()) } }, [AS_THEY_ARE, ...Object.keys(BITS)].map((name) => el("option", { value: name }, name)));
  return {
    values,
    controls: ["What if: ", el("label", {}, "weights", weights), context.node, answers.node, el("label", {}, "keys and values in", dtype)],
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

function forecast(view, { context, answers, dtype, weights }) {
  const perToken = view.bytes_per_token[dtype];
  const kv = perToken * context * answers;
  const parts = weights === AS_THEY_ARE ? partsOfWeights(view) : [[`weights in ${weights}`, view.formats[weights], "bytes-weights-read", 1]];
  return { perToken, kv, parts, weights: parts.reduce((sum, [, size]) => sum + size, 0) };
}

/** A part of a bar for each format of the weights, lighter from one to the next; small ones together. */
function partsOfWeights({ weights, weights_bytes: all }) {
  const large = weights.filter((f) => f.bytes >= LEAST_FORMAT * all);
  const rest = weights.filter((f) => !large.includes(f));
  const parts = large.map((f, i) => [`weights ${f.format}`, f.bytes, "bytes-weights-read", Math.max(0.35, 1 - 0.3 * i)]);
  if (rest.length) parts.push([`weights ${rest.map((f) => f.format).join(", ")}`, rest.reduce((sum, f) => sum + f.bytes, 0), "bytes-weights-read", 0.35]);
  return parts;
}

function warn(host, view, plan, { context, answers, dtype }) {
  const left = view.machine_bytes - plan.weights - view.activations_bytes;
  const asked = `${digits(answers)} answer${answers === 1 ? "" : "s"} of ${digits(context)} tokens in ${dtype} take ${bytes(plan.kv)} ○`;
  if (left < 0) say(host, `The weights do not fit: they take ${bytes(plan.weights)} ○ of ${bytes(view.machine_bytes)}. A smaller format of them might.`);
  else if (plan.kv > left) say(host, `This context does not fit: ${asked}, and ${bytes(left)} are left beside weights and activations. At most ${digits(Math.floor(left / plan.perToken / answers))} tokens each would.`);
  else say(host, `It fits: ${asked}; with weights and activations that is ${bytes(plan.weights + plan.kv + view.activations_bytes)} ○ of this machine's ${bytes(view.machine_bytes)}. The pool that was made holds ${digits(view.kv.pages * view.kv.page_size)} tokens. ${room(view, context)}`);
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
  const kv = "bytes-kv-read";
  const activated = (size) => ["activations", size, ACTIVATIONS_PAINT, 1, "predicted"];
  const left = Math.max(0, (view.resident_bytes ?? 0) - view.weights_bytes - view.kv.used_bytes);
  const rows = [
    { label: "forecast ○", mark: "predicted", parts: [...plan.parts, ["keys and values asked for", plan.kv, kv], activated(view.activations_bytes)], beyond: null },
    {
      label: "resident ●", mark: "measured", beyond: ["keys and values free", view.kv.free_bytes, kv],
      parts: [...partsOfWeights(view), ["keys and values so far", view.kv.used_bytes, kv], activated(Math.min(left, view.activations_bytes)), ["all else", view.other_bytes ?? 0, OTHER_PAINT, 1, "estimated"]],
    },
  ];
  const [forecastTotal, residentTotal] = rows.map(total);
  const most = Math.max(forecastTotal, residentTotal + view.kv.free_bytes);
  const end = Math.max(view.machine_bytes, most);
  const whole = linear([0, end], [0, width - 1]);
  const near = linear([0, most], [0, width - 1]);
  let y = 78;
  for (const row of rows) {
    [row.y, row.labels] = [y, labelled(row, near, width)];
    y += 22 + LABEL * (1 + Math.max(...row.labels.map(({ line }) => line))) + 30;
  }
  picture.render(width, y - 20, [rows.map((r) => [r.parts, r.beyond]), end], () => [
    machine(rows[0], view, whole, near, most, width),
    ...rows.map((row) => bar(picture, row, near)),
  ]);
}

const total = ({ parts }) => parts.reduce((sum, [, size]) => sum + size, 0);

/** All of the machine's memory, what is asked of it, and where the bars below are a part of it. */
function machine(forecastRow, view, whole, near, most, width) {
  const limit = whole(view.machine_bytes);
  let at = 0;
  const parts = forecastRow.parts.map(([, size, paint, shade = 1]) => {
    const left = whole(at);
    at += size;
    return svg("rect", { class: "paint", opacity: shade, data: { paint }, x: left, y: 18, width: Math.max(0.5, whole(at) - left), height: 10 });
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

/** The parts of a bar with where they begin, what they are called, and where that is written: below them, on as many lines as it takes. */
function labelled({ parts, beyond }, x, width) {
  let [at, free, line] = [0, 0, 0];
  return [...parts, ...(beyond ? [beyond] : [])].filter(([, size]) => size > 0).map(([name, size, paint, shade = 1, mark = null]) => {
    const left = x(at);
    at += size;
    const words = `${width < 520 ? name.replace("keys and values", "KV") : name} ${bytes(size)}`;
    const room = words.length * LETTER + 24;
    let from = Math.max(line ? 0 : left, free);
    if (from + room > width && from > 0) [line, from] = [line + 1, 0];
    free = from + room;
    return { name, size, paint, shade, mark, left, right: x(at), words, from, line, free: beyond !== null && beyond[0] === name };
  });
}

/** One bar and, below it, what its parts are. */
function bar(picture, row, x) {
  const { y, label, labels, mark } = row;
  const all = total(row);
  const nodes = labels.map((part) => {
    const style = part.free ? { class: "stroke", "stroke-dasharray": "3 2", "pointer-events": "all" } : { class: "paint", opacity: part.shade };
    const node = svg("rect", { ...style, data: { paint: part.paint }, x: part.left, y, width: Math.max(part.right - part.left - 0.75, 1), height: 22 });
    const below = y + 28 + part.line * LABEL;
    const share = part.free ? [] : [["of the bar", percent(part.size / all)]];
    return [
      picture.mark(node, {
        key: `${label} ${part.name}`,
        tip: () => ({ title: part.name, paint: part.paint, rows: [["size", bytes(part.size), part.name.startsWith("weights") ? "predicted" : part.mark ?? mark], ...share], note: part.free ? "Of the pool; a page becomes memory when it is first written." : "" }),
      }),
      svg("rect", { ...style, data: { paint: part.paint }, x: part.from, y: below, width: 7, height: 7, aria: { hidden: "true" } }),
      svg("text", { x: part.from + 10, y: below + 7, aria: { hidden: "true" } }, part.words),
    ];
  });
  return svg("g", {}, svg("text", { class: "strong", x: 0, y: y - 5 }, `${label}: ${bytes(all)}`), nodes);
}
