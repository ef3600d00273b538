// What things are called and painted: one colour per request and one per phase, everywhere.

/** Parts of a step, in the order in which they happen. */
export const PHASES = ["wait", "schedule", "draft", "prepare", "forward", "sample", "post", "emit", "unaccounted"];

/** Parts of a request's time, in order. */
export const STAGES = ["receive", "tokenize", "queue", "prefill", "decode", "detokenize", "send", "unaccounted"];

/** What a step reads and writes. */
export const TRAFFIC = ["weights_read", "kv_read", "kv_written", "activations"];

export const REQUEST_HUES = 10;

/** `r7` of an engine's id that ends in its count, else the id's beginning. */
export function shortName(id) {
  const found = /\.(\d+)$/.exec(id);
  return found ? `r${found[1]}` : String(id).slice(0, 10);
}

/** The name of a request's colour: by its number, so that every viewer and every recording agree. */
export function requestPaint(id) {
  const found = /\.(\d+)$/.exec(id);
  const number = found ? Number(found[1]) : hash(String(id));
  return `request-${number % REQUEST_HUES}`;
}

export const phasePaint = (phase) => `phase-${phase}`;
export const stagePaint = (stage) => `stage-${stage}`;
export const trafficPaint = (kind) => `bytes-${kind.replaceAll("_", "-")}`;

/** Words for the parts of a batch. */
export const KINDS = { prefill: "prompt", decode: "answer", verify: "guesses checked" };

/** What the operations of a layer are for. */
const OPERATIONS = {
  qkv: "queries, keys and values", "q+k+v": "queries, keys and values", "rope+store": "positions put in, keys and values kept", attn_out: "attention's last product",
  "gate+up": "the MLP's first products", up: "the MLP's first product", down: "the MLP's last product", head: "scores of all tokens", "norm+quantize": "norms",
};

/** An operation's name with what it is for, where the name does not say it. */
export const opInWords = (op) => (OPERATIONS[op] ? `${op} (${OPERATIONS[op]})` : op);

function hash(text) {
  let sum = 2166136261;
  for (let i = 0; i < text.length; i += 1) sum = Math.imul(sum ^ text.charCodeAt(i), 16777619);
  return sum >>> 0;
}
