// A strip of tokens: buttons in reading order that arrow keys walk.

import { el } from "../core/dom.js";

/** Fills `host` anew with `tokens`: `{key, text, className, paint, title, pressed, children}`. `on` has
 * `choose(key)`, `over(key)` and `out()`. The focus stays on the token that had it. */
export function drawStrip(host, tokens, on, label) {
  const focused = host.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  const nodes = tokens.map((token) => el("button", {
    type: "button", class: `token ${token.className ?? ""}`, data: { key: String(token.key), ...(token.paint ? { paint: token.paint } : {}) },
    title: token.title, tabindex: "-1", aria: token.pressed === undefined ? {} : { pressed: String(token.pressed) },
  }, token.text, token.children ?? null));
  tokens.forEach((token, i) => {
    for (const [name, value] of Object.entries(token.vars ?? {})) nodes[i].style.setProperty(`--${name}`, value);
  });
  host.replaceChildren(...nodes);
  host.setAttribute("role", "group");
  host.setAttribute("aria-label", label);
  const kept = nodes.find((node) => node.dataset.key === focused);
  (kept ?? nodes[0])?.setAttribute("tabindex", "0");
  kept?.focus({ preventScroll: true });
  if (host.dataset.wired) return;
  host.dataset.wired = "yes";
  wire(host, on);
}

function wire(host, on) {
  const keyOf = (event) => event.target.closest?.(".token")?.dataset.key ?? null;
  host.addEventListener("click", (event) => keyOf(event) !== null && on.choose?.(keyOf(event)));
  host.addEventListener("pointerover", (event) => keyOf(event) !== null && on.over?.(keyOf(event)));
  host.addEventListener("focusin", (event) => keyOf(event) !== null && on.over?.(keyOf(event)));
  host.addEventListener("pointerleave", () => on.out?.());
  host.addEventListener("focusout", () => on.out?.());
  host.addEventListener("keydown", (event) => walk(host, event));
}

function walk(host, event) {
  const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  const nodes = [...host.children];
  const now = nodes.indexOf(document.activeElement);
  if (now < 0) return;
  let next = by ? now + by : null;
  if (event.key === "Home") next = 0;
  if (event.key === "End") next = nodes.length - 1;
  if (next === null || !nodes[next]) return;
  event.preventDefault();
  nodes[now].setAttribute("tabindex", "-1");
  nodes[next].setAttribute("tabindex", "0");
  nodes[next].focus();
}

/** A token's text so that blanks and line ends can be seen. */
export function visible(text) {
  return text.replace(/\n/g, "↵").replace(/\t/g, "⇥").replace(/^ | $/g, "\u00b7").replace(/ {2,}/g, (blanks) => "·".repeat(blanks.length)) || "∅";
}
