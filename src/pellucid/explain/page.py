"""An explanation as one page: nothing in it comes from anywhere else, and nothing in it runs."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files

from pellucid.costs.roofline import Bound, Limits
from pellucid.explain.kv import KvAccount
from pellucid.explain.report import Elsewhere, Explanation, Here, Looked, Token
from pellucid.explain.shown import to_json
from pellucid.explain.timed import Split
from pellucid.explain.whatif import WhatIf
from pellucid.explain.words import billions, count, probability, seconds, size

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
Cells = Sequence[str]


def page(explanation: Explanation) -> str:
    """HTML with its style and its data inside; dark where the reader's system is."""
    style = files("pellucid.explain").joinpath("page.css").read_text("utf-8")
    name = escape(explanation.model.name)
    return (
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{name}, explained</title>\n<style>\n{style}</style>\n<body>\n<main>\n"
        f"{''.join(_sections(explanation))}</main>\n"
        f'<script type="application/json" id="data">{_data(explanation)}</script>\n'
    )


def _data(explanation: Explanation) -> str:
    """The same as JSON; `<` is escaped, so that no text ends the element."""
    text = json.dumps(_finite(to_json(explanation)), ensure_ascii=False)
    return text.replace("<", "\\u003c")


def _finite(value: object) -> object:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _sections(explanation: Explanation) -> Iterable[str]:
    yield _model(explanation)
    if explanation.prompt:
        yield _prompt(explanation.prompt)
    if explanation.looked is not None:
        yield _looked(explanation.looked, explanation.prompt)
    if explanation.here is not None:
        yield _here(explanation.here)
    if explanation.elsewhere is not None:
        yield _elsewhere(explanation.elsewhere)


def _model(explanation: Explanation) -> str:
    model = explanation.model
    lines = [
        f"{escape(model.family)}: {billions(model.parameters)} parameters, {model.layers} layers, "
        f"{model.heads} heads ({model.kv_heads} for keys and values) of {model.head_size}, width "
        f"{model.width}, vocabulary {model.vocabulary}",
        f"weights {size(model.weight_bytes)}, in the matrices {model.matrix_bits:.3g} bits each",
    ]
    if explanation.here is None:
        lines.append("Nothing was run: every number below is predicted.")
    paragraphs = "".join(f'<p class="soft">{line}</p>\n' for line in lines)
    return f"<h1>{escape(model.name)}</h1>\n{paragraphs}"


def _prompt(tokens: Sequence[Token]) -> str:
    items = "".join(
        f'<li class="token">{_text(token.text)}<small>{token.id}</small></li>' for token in tokens
    )
    return f'{_title(f"Tokens: {len(tokens)}")}<ol class="tokens">{items}</ol>\n'


def _looked(looked: Looked, prompt: Sequence[Token]) -> str:
    followed = _text(looked.followed.text)
    top = [(token.probability, _text(token.text)) for token in looked.top]
    lens = [
        (
            str(row.layers) if row.layers else "embedding",
            _text(row.top.text),
            probability(row.top.probability),
            probability(row.followed_probability),
            str(row.followed_rank),
        )
        for row in looked.lens
    ]
    after = ""
    if looked.position < len(prompt) - 1:
        after = f" after “{_text(prompt[looked.position].text)}”, token {looked.position}"
    attention = looked.attention
    prompt = prompt[: looked.position + 1]
    named = zip(attention.weights, prompt, strict=True)
    weights = [(weight, f"{i} {_text(token.text)}") for i, (weight, token) in enumerate(named)]
    head = f"Attention: layer {attention.layer}, head {attention.head}"
    columns = ("layers", "likeliest", "its p", f"p of {followed}", "rank")
    return (
        f"{_title('Next token' + after, 'computed')}{_bars(top)}"
        f"{_title('Logit lens', 'computed')}"
        '<p class="soft">The stream after each layer, read by the final norm and the head.</p>\n'
        f"{_table(columns, lens)}"
        f'{_title(head, "computed")}<p class="soft">For the next token; chosen: '
        f"{escape(attention.chosen)}.</p>\n{_bars(weights)}"
        f"{_matrix(attention.matrix, prompt)}"
    )


def _matrix(matrix: Sequence[Sequence[float]] | None, prompt: Sequence[Token]) -> str:
    """One head's weights, a row for each position: from pale to full."""
    if matrix is None:
        return ""
    rows = []
    for token, row in zip(prompt, matrix, strict=True):
        cells = "".join(
            f'<td style="--share:{100 * weight:.0f}%" '
            f'title="{probability(weight)} of {_text(seen.text)}"></td>'
            for weight, seen in zip(row, prompt, strict=True)
        )
        rows.append(f'<tr><th scope="row">{_text(token.text)}</th>{cells}</tr>')
    caption = "<caption>Each row: what that position takes from those before it.</caption>"
    return f'<div class="scroll"><table class="grid">{caption}{"".join(rows)}</table></div>\n'


def _here(here: Here) -> str:
    timed = here.timed
    parts = [
        _title(f"Answer ({escape(here.backend)} backend, {here.threads} threads)", "measured"),
        f'<p class="token">{_text(timed.text)}</p>\n',
        _split("First token", timed.first, timed.first_spread, timed.runs),
    ]
    if timed.later is not None and timed.later_spread is not None:
        parts.append(_split("Each later token", timed.later, timed.later_spread, timed.runs))
    stages = [("prefill", timed.prefill, here.prefill)]
    if timed.decode is not None and here.decode is not None:
        stages.append(("decode step", timed.decode, here.decode))
    rows = [["tokens", *(str(stage.tokens) for _, stage, _ in stages)]]
    rows += _bound_rows([bound for _, _, bound in stages])
    rows.append(["forward (measured)", *(seconds(stage.seconds) for _, stage, _ in stages)])
    rows.append(
        ["of the limit", *(f"{bound.seconds / stage.seconds:.0%}" for _, stage, bound in stages)]
    )
    dots = [
        (name, bound.intensity, bound.cost.operations / stage.seconds)
        for name, stage, bound in stages
    ]
    parts += [
        _title("What it cost, and what this machine could do", here.limits.mark),
        f"<p>{_limits(here.limits)}</p>\n",
        _table(("", *(name for name, _, _ in stages)), rows),
        _roofline(here.limits, dots),
        _kv(here.kv),
        _what_ifs(here.what_ifs),
    ]
    return "".join(parts)


def _split(what: str, split: Split, spread: tuple[float, float], runs: int) -> str:
    rows = [(part / split.seconds, name, part) for name, part in split.parts]
    rows.append((max(0.0, split.unaccounted / split.seconds), "unaccounted", split.unaccounted))
    low, high = map(seconds, spread)
    steady = f'<p class="soft">{low} to {high} in {runs} runs</p>\n' if runs > 1 else ""
    body = "".join(_bar_row(share, seconds(part), name) for share, name, part in rows)
    title = _title(f"{what}: {seconds(split.seconds)}", "measured")
    return f'{title}{steady}<div class="scroll"><table>{body}</table></div>\n'


def _bound_rows(bounds: Sequence[Bound]) -> list[list[str]]:
    return [
        ["operations (predicted)", *(count(one.cost.operations) for one in bounds)],
        ["weights read (predicted)", *(size(one.cost.weights_read) for one in bounds)],
        [
            "KV moved (predicted)",
            *(size(one.cost.kv_read + one.cost.kv_written) for one in bounds),
        ],
        ["operations a byte (predicted)", *(f"{one.intensity:.4g}" for one in bounds)],
        ["ridge", *(_ridge(one) for one in bounds)],
        ["bound by", *(one.verdict for one in bounds)],
        ["at least (predicted)", *(seconds(one.seconds) for one in bounds)],
    ]


def _ridge(bound: Bound) -> str:
    return f"{bound.ridge:.4g}" if math.isfinite(bound.ridge) else "not stated"


def _roofline(limits: Limits, dots: Sequence[tuple[str, float, float]]) -> str:
    """Operations a second against operations a byte, both logarithmic: the roof, and what was
    reached."""
    if not math.isfinite(limits.operations):
        return ""
    xs = [limits.ridge, *(x for _, x, _ in dots)]
    ys = [limits.operations, *(y for _, _, y in dots)]
    left, right = math.floor(math.log10(min(xs)) - 0.3), math.ceil(math.log10(max(xs)) + 0.3)
    low, high = math.floor(math.log10(min(ys)) - 0.3), math.ceil(math.log10(max(ys)) + 0.2)
    low = min(low, math.floor(math.log10(limits.bandwidth) + left))

    def place(x: float, y: float) -> str:
        across = 60 + 560 * (math.log10(x) - left) / (right - left)
        down = 260 - 230 * (math.log10(y) - low) / (high - low)
        return f"{across:.1f},{down:.1f}"

    start = place(10.0**left, limits.bandwidth * 10.0**left)
    roof = (
        f"{start} {place(limits.ridge, limits.operations)} {place(10.0**right, limits.operations)}"
    )
    marks = []
    for name, x, y in dots:
        across, down = place(x, y).split(",")
        best = min(limits.operations, limits.bandwidth * x)
        marks.append(
            f'<line x1="{across}" x2="{across}" y1="{down}" y2="{place(x, best).split(",")[1]}" '
            f'stroke="var(--warm)" stroke-dasharray="3 3"/>'
            f'<circle cx="{across}" cy="{down}" r="5" fill="var(--warm)"/>'
            f'<text x="{float(across) + 9:.1f}" y="{float(down) + 4:.1f}">{escape(name)}: '
            f"{y / best:.0%} of the roof</text>"
        )
    ticks = [
        f'<text x="{place(10.0**i, 10.0**low).split(",")[0]}" y="278" text-anchor="middle">'
        f"{10.0**i:g}</text>"
        for i in range(left, right + 1)
    ] + [
        f'<text x="54" y="{float(place(10.0**left, 10.0**i).split(",")[1]) + 4:.1f}" '
        f'text-anchor="end">{count(10.0**i)}</text>'
        for i in range(low, high + 1)
    ]
    return (
        '<svg viewBox="0 0 640 310" role="img" aria-label="Roofline: operations a second against '
        'operations a byte">'
        '<path d="M60 30V260H620" fill="none" stroke="var(--line)"/>'
        f'<polyline points="{roof}" fill="none" stroke="var(--fill)" stroke-width="2"/>'
        f"{''.join(ticks)}{''.join(marks)}"
        '<text x="340" y="300" text-anchor="middle">operations a byte</text>'
        '<text x="64" y="20">operations a second</text></svg>\n'
    )


def _kv(kv: KvAccount) -> str:
    mark = "predicted" if kv.allocated is None else "measured"
    lines = [kv.formula]
    lines += [f"{term.formula} = {term.bytes} bytes" for term in kv.terms]
    if kv.padding:
        lines.append(f"{kv.padding} bytes more: features rounded up, scales of blocks")
    lines.append(f"in {kv.pages} pages of {kv.page_size} positions: {kv.held} bytes ({kv.dtype})")
    if kv.trouble is not None:
        lines.append(f"DOES NOT ADD UP: {kv.trouble}")
    elif kv.allocated is not None:
        lines.append(f"the allocator took {kv.allocated} bytes for them: the same")
    body = "".join(f"<p><code>{escape(line)}</code></p>\n" for line in lines)
    return f"{_title(f'KV cache of {kv.length} positions', mark)}{body}"


def _what_ifs(what_ifs: Sequence[WhatIf]) -> str:
    rows = []
    for one in what_ifs:
        cells = [one.kind.value]
        for pair in (one.predicted, one.measured):
            if pair is None:
                cells += ["-", ""]
            else:
                cells.append(f"{seconds(pair.before.seconds)} to {seconds(pair.after.seconds)}")
                cells.append(f"{pair.times:.2f} x tokens/s")
        rows.append(cells)
    notes = "".join(
        f'<p class="soft">{escape(one.kind.value)}: {escape(one.change)}'
        f"{f' ({escape(one.note)})' if one.note else ''}</p>\n"
        for one in what_ifs
    )
    table = _table(("", "step, predicted", "", "step, measured", ""), rows)
    return f"{_title('What would change it')}{table}{notes}"


def _elsewhere(there: Elsewhere) -> str:
    hardware = there.hardware
    rows = _bound_rows([there.prefill, there.decode])
    rows.append(
        [
            "tokens/s at most (predicted)",
            count(there.length / there.prefill.seconds),
            count(1 / there.decode.seconds),
        ]
    )
    lines = [_limits(there.limits)]
    if hardware.computed:
        lines.append(f"computed: {escape(hardware.computed)}")
    lines += [f"source: {escape(link)}, read {hardware.date}" for link in hardware.sources]
    lines.append(
        f"every weight read once ({escape(there.bits)}): {seconds(there.whole_read)} at least"
    )
    needed = f"weights and KV cache: {size(there.needed)}"
    if there.chips is not None and hardware.memory is not None:
        fits = "it fits" if there.chips == 1 else f"it takes {there.chips} of them, or fewer bits"
        needed += f" of {size(hardware.memory)}: {fits}"
    columns = ("", f"prefill of {there.length}", f"decode at {there.length}")
    return (
        f"{_title(f'On {escape(hardware.what)}', 'predicted')}"
        f"{''.join(f'<p>{line}</p>' for line in lines)}\n{_table(columns, rows)}<p>{needed}</p>\n"
        f"{_kv(there.kv)}{_what_ifs(there.what_ifs)}"
    )


def _limits(limits: Limits) -> str:
    arithmetic = f"{count(limits.operations)} operations/s ({limits.arithmetic})"
    if not math.isfinite(limits.operations):
        arithmetic = "arithmetic not stated"
    return f"{escape(limits.name)}, {limits.mark}: {size(limits.bandwidth)}/s, {arithmetic}"


def _title(text: str, mark: str = "") -> str:
    """`text` is HTML already."""
    marked = f' <span class="mark">{mark}</span>' if mark else ""
    return f"<h2>{text}{marked}</h2>\n"


def _table(head: Cells, rows: Iterable[Cells]) -> str:
    """Cells are HTML already; the first of a row is its name."""
    first = "".join(f'<th scope="col">{cell}</th>' if cell else "<td></td>" for cell in head)
    body = "".join(
        f'<tr><th scope="row">{name}</th>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>\n'
        for name, *cells in rows
    )
    whole = f"<thead><tr>{first}</tr></thead>\n<tbody>{body}</tbody>"
    return f'<div class="scroll"><table>{whole}</table></div>\n'


def _bars(rows: Iterable[tuple[float, str]]) -> str:
    body = "".join(_bar_row(share, probability(share), name) for share, name in rows)
    return f'<div class="scroll"><table>{body}</table></div>\n'


def _bar_row(share: float, value: str, name: str) -> str:
    width = 100 * min(max(share, 0.0), 1.0)
    bar = f'<td class="bar"><span style="width:{width:.1f}%"></span></td>'
    return f'<tr><th scope="row">{name}</th><td>{value}</td>{bar}</tr>\n'


def _text(text: str) -> str:
    """A token's text so that every character of it shows."""
    shown = "".join(
        char if char.isprintable() or char == "\ufffd" else repr(char)[1:-1] for char in text
    )
    return escape(shown).replace(" ", "\u2423")
