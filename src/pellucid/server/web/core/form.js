// The form of a recording: what figures take for granted of its records, looked at once as it is opened.

const is = (holds, what) => (value) => (holds(value) ? "" : ` is no ${what}`);
const number = is(Number.isFinite, "number");
const text = is((value) => typeof value === "string", "text");
const map = is((value) => typeof value === "object" && value !== null && !Array.isArray(value), "object");
const known = (check) => (value) => (value === null || value === undefined ? "" : check(value));

/** Each of a list, or of an object's values, passes `check`. */
const each = (kind, check) => (value) => {
  const wrong = kind(value);
  if (wrong) return wrong;
  for (const [name, one] of Object.entries(value)) {
    const found = check(one);
    if (found) return `${Array.isArray(value) ? `[${name}]` : `.${name}`}${found}`;
  }
  return "";
};
const list = (check) => each(is(Array.isArray, "list"), check);
const fields = (checks) => (value) => {
  const wrong = map(value);
  if (wrong) return wrong;
  for (const [name, check] of Object.entries(checks)) {
    const found = check(value[name]);
    if (found) return `.${name}${found}`;
  }
  return "";
};

const numbers = each(map, known(number));
const places = known(list(number));
const MOST_PAGES = 1 << 22;
const pages = is((value) => Number.isInteger(value) && value >= 0 && value <= MOST_PAGES, "number of pages");

const ABOUT = fields({
  model: fields({ kv_bytes_per_token: number, layers: number, context: number }), machine: map, tensors: known(list(fields({ bytes: number }))),
  cache: fields({ n_pages: pages, page_size: number, bytes_per_page: number }),
});
const STEP = fields({
  id: is(Number.isSafeInteger, "number"), start: number, ms: numbers,
  batch: list(fields({ request: known(text), kind: text, tokens: number })), tokens: list(fields({ request: known(text) })),
  cost: numbers, drafts: known(list(fields({ accepted: number, checks: known(list(list(known(number)))) }))), checks: known(list(text)), queue: known(fields({ why: known(list(list(text))) })),
  pages: fields({ taken: places, shared: places, released: places, evicted: places, cached_now: places, ended: places, owners: known(list(fieldsOfOwner)), preempted: known(map) }),
});
const TIMES = ["received", "queued", "started", "first_token", "last_token", "finished", "sent", "tokenize_ms", "detokenize_ms", "prompt_tokens", "cached_tokens", "output_tokens"];
const REQUEST = fields({
  id: text, state: text, sequences: places, steps: places, checks: known(list(text)), ...Object.fromEntries(TIMES.map((name) => [name, known(number)])),
});
const SPAN = fields({ step: number, op: text });

/** An owner is `[sequence, first, [page...]]`. */
function fieldsOfOwner(value) {
  return Array.isArray(value) && value.length === 3 && Array.isArray(value[2]) ? "" : " is no owner";
}

/** What is wrong with a recording's records, with its place; "" for nothing. */
export const wrongIn = fields({
  about: known(ABOUT),
  records: fields({ steps: list(STEP), requests: list(REQUEST), spans: known(list(SPAN)), dropped: known(number), pool: known(map), prefix: known(map) }),
});
