"""GrammarCompiler: from what was asked to a grammar, bounded in time, memory, size and depth.

Nothing that a stranger wrote is compiled in this process before it was tried in another:

1. Sizes, depths and keywords are checked in plain Python (`core.structured`, `schema`).
2. The grammar is compiled and its first mask computed in one of two processes with limits on
   memory, stack and time (`trials`, `killable`, `worker`). What comes back is a verdict and no
   more: a compiled grammar is a web of automata that grows as it is used, and has no form in bytes.
3. What passed is compiled again here, by the same code under the same limits, with a deeper stack.
   llguidance compiles deterministically, so that this costs what it cost there: at most the
   seconds allowed, commonly a millisecond.

Grammars and refusals are kept by content, least recently used out first.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pellucid.core.errors import BadInput
from pellucid.core.structured import StructuredOutputs
from pellucid.sampling.grammar.limits import DEEP_STACK, GrammarLimits, parser_limits
from pellucid.sampling.grammar.matcher import Grammar, Mask, TokenSets
from pellucid.sampling.grammar.source import lark_of
from pellucid.sampling.grammar.threads import pool, run_with_stack
from pellucid.sampling.grammar.trial import reason_of
from pellucid.sampling.grammar.trials import Trials
from pellucid.sampling.grammar.vocabulary import TokenBytes, compiled
from pellucid.text import Tokenizer

if TYPE_CHECKING:
    from llguidance import LLTokenizer

_MASK_THREADS = 4  # at most; a mask takes tens of microseconds


class GrammarCompiler:
    """Compiles for one vocabulary. Safe for several threads; `compile` may wait for those of others
    when the processes are all busy.

    tokenizer: whose tokens. is_token: bool [vocabulary], the rows of the model's table that are
    tokens; masks have a bit for each row. limits: what one grammar may cost.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        is_token: NDArray[np.bool_],
        limits: GrammarLimits | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._is_token = is_token
        self._limits = limits or GrammarLimits()
        self._kept: OrderedDict[StructuredOutputs, Grammar | BadInput] = OrderedDict()
        self._kept_chars = 0
        self._under_way: dict[StructuredOutputs, threading.Event] = {}
        self._lock = threading.Lock()  # of what is kept and what is under way
        self._making = threading.Lock()  # of what is made once

    def compile(self, asked: StructuredOutputs) -> Grammar:
        """The grammar of `asked`.

        Raises `BadInput` (`UnsupportedError` for what cannot be enforced) naming what is wrong,
        `PellucidError` when the process to try it in cannot be started.
        """
        found = self._look_up(asked)
        while found is None:
            text = lark_of(asked)
            ended = threading.Event()
            with self._lock:
                others = self._under_way.setdefault(asked, ended)
            if others is ended:
                found = self._compile_and_keep(asked, text, ended)
            else:
                others.wait()
                found = self._look_up(asked)  # None if it failed there: then it is ours to try
        if isinstance(found, BadInput):
            raise BadInput(str(found))
        return found

    def close(self) -> None:
        """Ends the process and the threads. Matchers that are still used compute where they are."""
        for name in ("_trials", "_threads"):
            part = self.__dict__.pop(name, None)
            if isinstance(part, Trials):
                part.close()
            elif isinstance(part, ThreadPoolExecutor):
                part.shutdown(wait=False)

    def _compile_and_keep(
        self, asked: StructuredOutputs, text: str, ended: threading.Event
    ) -> Grammar | BadInput:
        try:
            found = self._look_up(asked)  # somebody else's, meanwhile
            if found is None:
                found = self._compiled(asked.kind, text)
                self._keep(asked, found)
            return found
        finally:
            with self._lock:
                del self._under_way[asked]
            ended.set()

    def _compiled(self, kind: str, text: str) -> Grammar | BadInput:
        with self._making:
            trials = self._trials
        with trials.one() as process:
            process.start()  # reads the vocabulary while we do
            with self._making:
                tokenizer, sets, threads = self._trie, self._sets, self._threads
            reason = process.reason_against(text)
        if reason:
            return BadInput(f"structured_outputs: {kind}: {reason}")
        found: list[Grammar | BadInput] = []

        def work() -> None:
            from llguidance import LLMatcher

            matcher = LLMatcher(tokenizer, text, log_level=0, limits=parser_limits())
            try:
                found.append(Grammar(matcher, sets, threads))
            except BadInput:
                reason = reason_of(matcher) or "no token of this vocabulary begins it"
                found.append(BadInput(f"structured_outputs: {kind}: {reason}"))

        run_with_stack(DEEP_STACK, work)
        return found[0]

    def _look_up(self, asked: StructuredOutputs) -> Grammar | BadInput | None:
        with self._lock:
            found = self._kept.get(asked)
            if found is not None:
                self._kept.move_to_end(asked)
            return found

    def _keep(self, asked: StructuredOutputs, made: Grammar | BadInput) -> None:
        with self._lock:
            self._kept[asked] = made
            self._kept_chars += asked.size
            while len(self._kept) > self._limits.cached or (
                self._kept_chars > self._limits.cached_chars and len(self._kept) > 1
            ):
                oldest, _ = self._kept.popitem(last=False)
                self._kept_chars -= oldest.size

    @cached_property
    def _vocabulary(self) -> TokenBytes:
        tokenizer, rows = self._tokenizer, len(self._is_token)
        ids = range(min(tokenizer.vocab_size, rows))
        ends = [token for token in tokenizer.eos_ids if token < rows]
        if not ends:
            raise BadInput(
                "structured_outputs: this model has no token that ends an answer, so that an "
                "answer could not be complete: use a model that has one"
            )
        special = sorted(token for token in tokenizer.special_ids if token < rows)
        of = tokenizer.vocabulary.token_bytes
        return TokenBytes([of(i) if self._is_token[i] else b"" for i in ids], special, ends)

    @cached_property
    def _trie(self) -> LLTokenizer:
        return compiled(self._vocabulary)

    @cached_property
    def _sets(self) -> TokenSets:
        vocabulary, rows = self._vocabulary, len(self._is_token)
        text = self._is_token.copy()
        text[[*vocabulary.special, *vocabulary.ends]] = False
        ends = np.zeros(rows, np.bool_)
        ends[list(vocabulary.ends)] = True
        return TokenSets(_bits(text), _bits(ends))

    @cached_property
    def _trials(self) -> Trials:
        return Trials(self._vocabulary, self._limits)

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        return pool(min(_MASK_THREADS, os.cpu_count() or 1))


def _bits(flags: NDArray[np.bool_] | Sequence[bool]) -> Mask:
    """Flags [n] as bits, uint32 [ceil(n / 32)]."""
    words = np.zeros((len(flags) + 31) // 32 * 4, np.uint8)
    packed = np.packbits(flags, bitorder="little")
    words[: len(packed)] = packed
    mask: Mask = words.view("<u4")
    mask.flags.writeable = False
    return mask
