"""An explanation drawn in a terminal."""

from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from pellucid.cli.output import printable
from pellucid.explain.words import billions, count, probability, seconds, size

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from pellucid.costs.roofline import Bound, Limits
    from pellucid.explain import Explanation
    from pellucid.explain.kv import KvAccount
    from pellucid.explain.report import Elsewhere, Here, Looked, Token
    from pellucid.explain.timed import Split
    from pellucid.explain.whatif import WhatIf

WIDTH = 100
_NARROWEST = 40
_BAR = 30


def draw(explanation: Explanation) -> str:
    """All of it, a line end at its end; with colours where standard output is a terminal."""
    from rich.console import Console

    out = io.StringIO()
    console = Console(
        file=out,
        width=WIDTH,
        height=WIDTH,  # without one a dumb terminal has 80 columns, and tables are cut off
        force_terminal=sys.stdout.isatty(),
        highlight=False,
        soft_wrap=True,
    )
    _model(console, explanation)
    if explanation.prompt:
        _prompt(console, explanation.prompt)
    if explanation.looked is not None:
        _looked(console, explanation.looked, explanation.prompt)
    if explanation.here is not None:
        _here(console, explanation.here)
    if explanation.elsewhere is not None:
        _elsewhere(console, explanation.elsewhere)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _model(console: Console, explanation: Explanation) -> None:
    model = explanation.model
    _title(console, printable(model.name))
    _line(
        console,
        f"{model.family}: {billions(model.parameters)} parameters, {model.layers} layers, "
        f"{model.heads} heads ({model.kv_heads} for keys and values) of {model.head_size}, width "
        f"{model.width}, vocabulary {model.vocabulary}",
    )
    _line(
        console,
        f"weights {size(model.weight_bytes)}, in the matrices {model.matrix_bits:.3g} bits each",
    )
    if explanation.here is None:
        _line(console, "Nothing was run: every number below is predicted.")


def _prompt(console: Console, tokens: Sequence[Token]) -> None:
    _title(console, f"Tokens: {len(tokens)}")
    _line(console, "  ".join(f"{_quoted(token.text)} {token.id}" for token in tokens))


def _looked(console: Console, looked: Looked, prompt: Sequence[Token]) -> None:
    where = _after(looked, prompt)
    _title(console, f"Next token{where} (computed)")
    for token in looked.top:
        _line(console, _share_line(token.probability, _quoted(token.text)))
    followed = _quoted(looked.followed.text)
    _title(console, f"Logit lens (computed): the stream after each layer, and {followed} in it")
    table = _table("layers", "likeliest", "its p", f"p of {followed}", "rank")
    for row in looked.lens:
        table.add_row(
            str(row.layers) if row.layers else "embedding",
            _plain(_quoted(row.top.text)),
            probability(row.top.probability),
            probability(row.followed_probability),
            str(row.followed_rank),
        )
    console.print(table)
    attention = looked.attention
    where = f"layer {attention.layer}, head {attention.head}"
    _title(console, f"Attention (computed): {where}, for the next token")
    _line(console, f"chosen: {attention.chosen}")
    for name, weight in _largest(prompt, attention.weights):
        _line(console, _share_line(weight, name))


def _after(looked: Looked, prompt: Sequence[Token]) -> str:
    """Where in the prompt, if that is not its end."""
    at = looked.position
    if at == len(prompt) - 1:
        return ""
    return f" after {_quoted(prompt[at].text)}, token {at} of 0 to {len(prompt) - 1}"


def _largest(prompt: Sequence[Token], weights: Sequence[float]) -> Iterable[tuple[str, float]]:
    """Every token of a short prompt in its order, or those with the largest shares."""
    order: Iterable[int] = range(len(weights))
    if len(weights) > 24:
        order = sorted(sorted(order, key=lambda i: -weights[i])[:16])
    return ((f"{i:3} {_quoted(prompt[i].text)}", weights[i]) for i in order)


def _here(console: Console, here: Here) -> None:
    timed = here.timed
    _title(console, f"Answer ({here.backend} backend, {here.threads} threads)")
    _line(console, printable(timed.text))
    _split(console, "First token", timed.first, timed.first_spread, timed.runs)
    if timed.later is not None and timed.later_spread is not None:
        _split(console, "Each later token", timed.later, timed.later_spread, timed.runs)
    _title(console, "What it cost, and what this machine could do")
    _line(console, _limits(here.limits))
    table = _table("", "prefill", "decode step")
    stages = [(timed.prefill, here.prefill)]
    if timed.decode is not None and here.decode is not None:
        stages.append((timed.decode, here.decode))
    rows = [_bound_rows(bound) for _, bound in stages]
    table.add_row("tokens", *(str(stage.tokens) for stage, _ in stages))
    for parts in zip(*rows, strict=True):
        table.add_row(parts[0][0], *(value for _, value in parts))
    table.add_row("forward, measured", *(seconds(stage.seconds) for stage, _ in stages))
    table.add_row(
        "of the limit", *(f"{bound.seconds / stage.seconds:.0%}" for stage, bound in stages)
    )
    console.print(table)
    _kv(console, here.kv)
    _what_ifs(console, here.what_ifs)


def _split(
    console: Console, what: str, split: Split, spread: tuple[float, float], runs: int
) -> None:
    low, high = spread
    steady = f" ({seconds(low)} to {seconds(high)} in {runs} runs)" if runs > 1 else ""
    _title(console, f"{what}: {seconds(split.seconds)}, measured{steady}")
    for name, part in (*split.parts, ("unaccounted", split.unaccounted)):
        share = max(0.0, part / split.seconds)
        _line(console, f"{seconds(part):>9}  {_bar(share)}  {name}")


def _bound_rows(bound: Bound) -> list[tuple[str, str]]:
    cost = bound.cost
    ridge = "" if bound.ridge == float("inf") else f" (ridge {bound.ridge:.4g})"
    return [
        ("operations, predicted", f"{count(cost.operations)}"),
        ("bytes of weights, predicted", size(cost.weights_read)),
        ("bytes of KV, predicted", size(cost.kv_read + cost.kv_written)),
        ("operations a byte, predicted", f"{bound.intensity:.4g}{ridge}"),
        ("bound by", bound.verdict),
        ("at least, predicted", seconds(bound.seconds)),
    ]


def _kv(console: Console, kv: KvAccount) -> None:
    mark = "predicted" if kv.allocated is None else "measured at the allocator"
    _title(console, f"KV cache of {kv.length} positions, {mark}")
    _line(console, kv.formula)
    for term in kv.terms:
        _line(console, f"{term.formula} = {term.bytes} bytes")
    if kv.padding:
        _line(console, f"{kv.padding} bytes more: features rounded up, scales of blocks")
    _line(console, f"in {kv.pages} pages of {kv.page_size} positions: {kv.held} bytes ({kv.dtype})")
    if kv.trouble is not None:
        _line(console, f"DOES NOT ADD UP: {kv.trouble}")
    elif kv.allocated is not None:
        _line(console, f"the allocator took {kv.allocated} bytes for them: the same")


def _what_ifs(console: Console, what_ifs: Sequence[WhatIf]) -> None:
    _title(console, "What would change it")
    table = _table("", "predicted", "", "measured", "")
    for what_if in what_ifs:
        cells: list[str] = []
        for pair in (what_if.predicted, what_if.measured):
            if pair is None:
                cells += ["-", ""]
                continue
            cells.append(f"{seconds(pair.before.seconds)} to {seconds(pair.after.seconds)}")
            cells.append(f"{pair.times:.2f} x tokens/s")
        table.add_row(what_if.kind.value, *cells)
    console.print(table)
    for what_if in what_ifs:
        note = f" ({what_if.note})" if what_if.note else ""
        _line(console, f"{what_if.kind.value}: {what_if.change}{note}")


def _elsewhere(console: Console, there: Elsewhere) -> None:
    hardware = there.hardware
    _title(console, f"On {printable(hardware.what)} (predicted, nothing was run)")
    _line(console, _limits(there.limits))
    if hardware.computed:
        _line(console, f"computed: {hardware.computed}")
    for source in hardware.sources:
        _line(console, f"source: {source}, read {hardware.date}")
    weights = size(there.prefill.cost.weights_read)
    _line(
        console,
        f"every weight read once ({there.bits}): {seconds(there.whole_read)} at least; a step "
        f"reads {weights} of weights, one row of the embedding for each token",
    )
    table = _table("", f"prefill of {there.length}", f"decode at {there.length}")
    for parts in zip(_bound_rows(there.prefill), _bound_rows(there.decode), strict=True):
        table.add_row(parts[0][0], parts[0][1], parts[1][1])
    table.add_row(
        "tokens/s at most",
        count(there.length / there.prefill.seconds),
        count(1 / there.decode.seconds),
    )
    console.print(table)
    needed = size(there.needed)
    if there.chips is not None and hardware.memory is not None:
        memory = size(int(hardware.memory))
        fits = "it fits" if there.chips == 1 else f"it takes {there.chips} of them, or fewer bits"
        _line(console, f"weights and KV cache: {needed} of {memory}: {fits}")
    else:
        _line(console, f"weights and KV cache: {needed}")
    _kv(console, there.kv)
    _what_ifs(console, there.what_ifs)


def _limits(limits: Limits) -> str:
    arithmetic = f"{limits.operations / 1e12:.3g} T operations/s ({limits.arithmetic})"
    if limits.operations == float("inf"):
        arithmetic = "arithmetic not stated"
    return (
        f"{printable(limits.name)}, {limits.mark}: {limits.bandwidth / 1e9:.4g} GB/s, {arithmetic}"
    )


def _title(console: Console, text: str) -> None:
    console.print()
    console.print(_styled(text, "bold"))


def _line(console: Console, text: str) -> None:
    from rich.padding import Padding

    console.print(Padding(_styled(text), (0, 0, 0, 2)), soft_wrap=False, width=_prose_width())


def _prose_width() -> int:
    """Columns that sentences take: those of a narrow terminal; tables keep theirs."""
    if not sys.stdout.isatty():
        return WIDTH
    return max(_NARROWEST, min(WIDTH, shutil.get_terminal_size().columns))


def _styled(text: str, style: str = "") -> Text:
    from rich.text import Text

    return Text(text, style)


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def _table(first: str, *others: str) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column(first, no_wrap=True)
    for name in others:
        table.add_column(_plain(name), justify="right", no_wrap=True)
    return table


def _share_line(share: float, name: str) -> str:
    return f"{probability(share):>7}  {_bar(share)}  {name}"


def _bar(share: float) -> str:
    """A share from 0 to 1 as a bar."""
    return ("█" * round(_BAR * min(share, 1.0))).ljust(_BAR)


def _quoted(text: str) -> str:
    return f"'{printable(text)}'"
