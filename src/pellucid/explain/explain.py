"""From a model and a prompt to the explanation: what is opened, in which order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pellucid.core.errors import BadInput, PellucidError
from pellucid.costs import WeightSize
from pellucid.costs.hardware import Hardware
from pellucid.costs.roofline import Limits, Priced, bound
from pellucid.engine.llm import LLM
from pellucid.explain.inside import look_inside
from pellucid.explain.kv import kv_account
from pellucid.explain.measure import Bench, Guessed, guessed
from pellucid.explain.report import (
    Elsewhere,
    Explanation,
    Here,
    Looked,
    ModelFacts,
    Token,
    elsewhere,
)
from pellucid.explain.seen import (
    Likely,
    attention,
    check_head,
    lens,
    likeliest,
    probabilities,
)
from pellucid.explain.source import Source, check_bits, open_source
from pellucid.explain.timed import time_answer, time_in_turn
from pellucid.explain.whatif import DRAFT_SIZE, Change, what_ifs
from pellucid.formats import open_checkpoint
from pellucid.ops.native.backend import available_threads
from pellucid.ops.native.peaks import Peaks, Probe
from pellucid.text import Tokenizer

# Attention is looked at in every head for every pair of positions, in NumPy.
MAX_PROMPT = 512
DEFAULT_LENGTH = 1024  # positions where no prompt gives them

Note = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Wishes:
    """What to explain.

    position: the token of the prompt that is looked at, from 0, or from the end if negative; None
    is the last. follow: the text whose first token the lens follows; None is what the prompt goes
    on with there, at its end the model's own choice. length: positions to price elsewhere; None is
    the prompt's.
    """

    top: int = 5
    tokens: int = 16
    layer: int | None = None
    head: int | None = None
    follow: str | None = None
    measure: bool = False
    hardware: Hardware | None = None
    bits: float | None = None
    length: int | None = None
    backend: str = "native"
    threads: int | None = None
    draft: Path | None = None
    kv_dtype: str | None = None
    position: int | None = None


def explain(path: Path, prompt: str | None, wishes: Wishes, note: Note) -> Explanation:
    """Explain `prompt` on the model at `path`; without a prompt, or without weights, predict for
    `wishes.hardware` alone. `note` is told what is being done.

    Raises `BadInput` naming what is wrong with the prompt or a wish, and what loading raises.
    """
    check_bits(wishes.bits)
    if prompt == "":
        raise BadInput("the prompt is empty: give it at least one character")
    source = open_source(path, wishes.bits, wishes.kv_dtype or "f16")
    heads = [layer.n_heads for layer in source.spec.layers]
    check_head(len(heads), heads, wishes.layer, wishes.head)
    if prompt is None or not source.whole:
        return _predicted(source, prompt, wishes)
    with LLM(path, **_engine_options(wishes)) as llm:
        return _of_prompt(llm, prompt, source, wishes, note)


def _predicted(source: Source, prompt: str | None, wishes: Wishes) -> Explanation:
    """What can be said without running anything."""
    if wishes.hardware is None:
        what = "a prompt" if source.whole else "weights, and there is a configuration alone"
        raise BadInput(
            f"{source.path}: to explain an answer takes {what}: give --hardware NAME to predict "
            "what another machine would take"
        )
    tokens: tuple[Token, ...] = ()
    if prompt is not None and (source.path / "tokenizer.json").is_file():
        tokenizer = Tokenizer.from_folder(source.path)
        tokens = _tokens(tokenizer, tuple(tokenizer.encode(prompt)))
    facts = ModelFacts.of(source.path.name, source.priced)
    return Explanation(facts, tokens, elsewhere=_elsewhere(source, len(tokens), wishes))


def _elsewhere(source: Source, prompt_tokens: int, wishes: Wishes) -> Elsewhere | None:
    if wishes.hardware is None:
        return None
    trained = source.spec.context_length
    length = wishes.length or prompt_tokens or min(DEFAULT_LENGTH, trained)
    if length > trained:
        raise BadInput(f"--context {length}: the model was made for {trained} positions: lower it")
    return elsewhere(source, wishes.hardware, length)


def _of_prompt(llm: LLM, prompt: str, source: Source, wishes: Wishes, note: Note) -> Explanation:
    ids = llm.front.prompt(prompt).token_ids
    if len(ids) > MAX_PROMPT:
        raise BadInput(
            f"the prompt has {len(ids)} tokens and `explain` looks at {MAX_PROMPT} at most: "
            "shorten it"
        )
    if len(ids) + wishes.tokens > llm.max_model_len:
        raise BadInput(
            f"the prompt has {len(ids)} tokens, {wishes.tokens} are to follow, and the context "
            f"holds {llm.max_model_len}: shorten the prompt or lower --tokens"
        )
    position = _position(wishes.position, len(ids))
    note("looking inside: one pass of the reference, float32")
    looked = _look(llm, source.path, ids, position, wishes)
    note(f"timing an answer of {wishes.tokens} tokens")
    here = _here(llm, prompt, len(ids), source, wishes, note)
    return Explanation(
        ModelFacts.of(llm.model_path.name, _priced(llm)),
        _tokens(llm.tokenizer, ids),
        looked,
        here,
        _elsewhere(source, len(ids), wishes),
    )


def _position(asked: int | None, length: int) -> int:
    """The place in the prompt, from 0. Raises `BadInput`."""
    position = length - 1 if asked is None else asked
    if not -length <= position < length:
        raise BadInput(
            f"--position {asked}: the prompt has tokens 0 to {length - 1}, or -{length} to -1 "
            "counted from its end"
        )
    return position % length


def _look(llm: LLM, path: Path, ids: tuple[int, ...], position: int, wishes: Wishes) -> Looked:
    """What the model saw at `position`: it sees nothing of what follows, so that the prompt up to
    there is computed alone."""
    tokenizer = llm.tokenizer

    def text_of(token: int) -> str:  # tables are padded past the last token
        return tokenizer.token_text(token) if token < tokenizer.vocab_size else f"[row {token}]"

    with open_checkpoint(path) as checkpoint:
        inside = look_inside(checkpoint, ids[: position + 1], llm.max_model_len)
    last = probabilities(inside.lens[-1])
    top = tuple(likeliest(last, wishes.top, text_of))
    followed = top[0].id if position == len(ids) - 1 else ids[position + 1]
    if wishes.follow is not None:
        followed = _first_token(tokenizer, wishes.follow)
    return Looked(
        position,
        top,
        Likely(followed, text_of(followed), float(last[followed])),
        tuple(lens(inside, followed, text_of)),
        attention(inside, wishes.layer, wishes.head),
    )


def _first_token(tokenizer: Tokenizer, text: str) -> int:
    ids = tokenizer.encode_fragment(text, at_start=False)
    if not ids:
        raise BadInput("--follow: the text is empty: give the token's text, as ' basketball'")
    return ids[0]


def _here(
    llm: LLM, prompt: str, prompt_tokens: int, source: Source, wishes: Wishes, note: Note
) -> Here:
    model, priced = llm.engine.model, _priced(llm)
    timed = time_answer(llm, prompt, wishes.tokens)
    threads = wishes.threads or available_threads()
    note("measuring the machine's limits")
    limits = _limits(Probe(threads, max(priced.weight_bytes, 1)).measure(), priced, wishes.backend)
    page_size = llm.engine.scheduler.limits.page_size
    end = prompt_tokens + wishes.tokens - 1  # the last token is chosen and never computed
    kv = kv_account(model.spec, end, page_size, model.ops.kv_dtype, model.ops.kv_lanes, model.ops)
    _check_pages(timed.held, page_size)
    share = DRAFT_SIZE
    if wishes.draft is not None:
        share = open_source(wishes.draft).priced.weight_bytes / priced.weight_bytes
    changes = what_ifs(priced, limits, end, share)
    if wishes.measure:
        note("measuring what would change it")
        bench = Bench(model, priced, limits, source.path, llm.max_model_len)
        changes = bench.measured(changes, end, _guessing(llm, source.path, prompt, wishes))
    return Here(
        wishes.backend,
        threads,
        limits,
        timed,
        bound(timed.prefill.cost, limits),
        None if timed.decode is None else bound(timed.decode.cost, limits),
        kv,
        tuple(changes),
    )


def _guessing(plain: LLM, path: Path, prompt: str, wishes: Wishes) -> dict[Change, Guessed]:
    """The same answer with guesses from the text, and with those of a draft if one was named."""
    methods: dict[Change, dict[str, str]] = {Change.NGRAM: {"method": "ngram"}}
    if wishes.draft is not None:
        methods[Change.DRAFT] = {"method": "draft", "model": str(wishes.draft)}
    found: dict[Change, Guessed] = {}
    for change, method in methods.items():
        try:
            with LLM(path, speculative=method, **_engine_options(wishes)) as llm:
                found[change] = guessed(*time_in_turn([plain, llm], prompt, wishes.tokens))
        except PellucidError as error:  # a draft of other tokens, or no memory for one more model
            found[change] = Guessed(None, f"not measured: {error}")
    return found


def _engine_options(wishes: Wishes) -> dict[str, Any]:
    """An engine whose times are one prompt's own: nothing of an earlier run is kept."""
    return {
        "backend": wishes.backend,
        "threads": wishes.threads,
        "kv_cache_dtype": wishes.kv_dtype,
        "enable_prefix_caching": False,
        "max_num_seqs": 1,
    }


def _check_pages(held: tuple[int, int] | None, page_size: int) -> None:
    """What the engine gave the sequence must be what the account says. Raises `PellucidError`."""
    if held is None:
        return
    positions, pages = held
    if pages != -(-positions // page_size):
        raise PellucidError(
            f"the engine held {pages} pages of {page_size} for {positions} positions: this is a "
            "fault of Pellucid"
        )


def _limits(peaks: Peaks, priced: Priced, backend: str) -> Limits:
    """What these threads do at best on these weights: quantised ones are multiplied as int8."""
    as_int8 = backend == "native" and priced.matrix_bits < 16
    operations, kind = (peaks.int8, "int8") if as_int8 else (peaks.f32, "f32")
    return Limits("this machine", peaks.read, operations, kind, "measured")


def _priced(llm: LLM) -> Priced:
    """The model as the engine holds it."""
    model = llm.engine.model
    sizes = {
        name: WeightSize(tuple(weight.shape), int(weight.nbytes))
        for name, weight in model.weights.items()
    }
    return Priced(model.spec, sizes, model.ops.kv_dtype, model.ops.kv_lanes)


def _tokens(tokenizer: Tokenizer, ids: tuple[int, ...]) -> tuple[Token, ...]:
    return tuple(Token(token, tokenizer.token_text(token)) for token in ids)
