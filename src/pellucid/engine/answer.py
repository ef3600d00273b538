"""Answer: one sample of a request in the making, from tokens chosen to text and an end.

How an answer ends, the first that applies to a token counting:

1. an end-of-sequence token, unless `ignore_eos`: "stop", no stop_reason
2. one of `stop_token_ids`: "stop", that id
3. a stop string in the text, looked for once more than `min_tokens` tokens are out: "stop", the
   string
4. a grammar that nothing can be added to: "stop", no stop_reason; no end token follows
5. `max_tokens`, or the context's end: "length"

A grammar allows an end token where the text is complete. `min_tokens` and `ignore_eos` take it
away again where the text could go on; where it could not, the answer ends.

The token that ended it is the last of `token_ids`; its text, and a stop string, are left out of
the text unless `include_stop_str_in_output`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pellucid.core.outputs import FinishReason, Increment, TokenChoice, TokenLogprob
from pellucid.core.params import SamplingParams
from pellucid.engine.request import Request
from pellucid.sampling import Draw, History, may_be_checked_after, sample_seed
from pellucid.text import Detokenizer, StopMatcher, Tokenizer

if TYPE_CHECKING:
    from pellucid.sampling.grammar import FreeChoice, Matcher


class Answer:
    """Answer `index` of `request`."""

    def __init__(self, request: Request, index: int, tokenizer: Tokenizer) -> None:
        params = request.params
        self._request = request
        self._index = index
        self._tokenizer = tokenizer
        self._seed = sample_seed(request.seed, index)
        self._history = History(request.prompt_token_ids)
        self._n_prompt = len(request.prompt_token_ids)
        self._detokenizer = Detokenizer(tokenizer, params.skip_special_tokens, continuation=True)
        self._stops = (
            StopMatcher(params.stop, include=params.include_stop_str_in_output)
            if params.stop
            else None
        )
        self._matcher = None if request.grammar is None else request.grammar.start()
        self._free = _free_choice(self._matcher, params)
        self._forced: dict[bytes, tuple[int, ...]] = {}  # of the last text that was
        ignored = params.ignore_eos and self._matcher is None
        self._eos_ids = frozenset(() if ignored else tokenizer.eos_ids)
        self._stop_ids = frozenset(params.stop_token_ids)
        self._end_ids = tuple(sorted(self._eos_ids | self._stop_ids))
        self.speculates = params.speculative  # whether drafts may be made for it
        self.n_tokens = 0
        self.detokenize_s = 0.0
        self.finish_reason: FinishReason | None = None
        self._stop_reason: int | str | None = None

    @property
    def finished(self) -> bool:
        return self.finish_reason is not None

    def possible(self, draft: tuple[int, ...]) -> tuple[int, ...]:
        """As much of `draft` as the answer's grammar allows next."""
        return draft if self._matcher is None else draft[: self._matcher.possible(draft)]

    def forced(self) -> tuple[int, ...]:
        """Tokens that its grammar leaves no choice of, as the text would be written by itself; the
        last that it could be is left out, since with what follows it may be another."""
        text = b"" if self._matcher is None else self._matcher.forced()
        if not text:
            return ()
        if text not in self._forced:
            tokens = self._tokenizer.encode_fragment(_characters(text), at_start=False)
            self._forced = {text: tuple(tokens[:-1])}
        return self._forced[text]

    def draw(self, *, masked: bool = True) -> Draw:
        """What the choice of its next token depends on; its grammar aside if not `masked`.

        Raises `BadInput` when its grammar cannot be followed any further.
        """
        params = self._request.params
        position = self._n_prompt + self.n_tokens
        if self._matcher is None or not masked:
            drawn = params, self._seed, position, self._history, self._end_ids, None, None
            return tuple.__new__(Draw, drawn)  # as the scheduler makes spans
        may_end = not params.ignore_eos and self.n_tokens >= params.min_tokens
        ends = tuple(self._stop_ids - self._eos_ids)  # of the others the mask has decided
        mask, form = None, None
        if self._free is None:
            mask = self._matcher.mask(may_end)
        else:
            mask, form = self._free.draw(may_end)
        return Draw(params, self._seed, position, self._history, ends, mask, form)

    def take(self, choice: TokenChoice) -> Increment:
        """Another token was chosen; returns what it adds.

        Raises `BadInput` when its grammar cannot be followed any further.
        """
        token = choice.token_id
        self.n_tokens += 1
        self._history.append(token)
        if token in self._end_ids:
            text = self._end_text(token)
        else:
            began = time.perf_counter()
            text = self._detokenizer.push(token)
            self.detokenize_s += time.perf_counter() - began
            if self._stops is not None and self.n_tokens > self._request.params.min_tokens:
                text = self._stops.push(text)
                if self._stops.matched is not None:
                    self.finish_reason, self._stop_reason = "stop", self._stops.matched
            if self.finish_reason is None and self._complete(token):
                text += self._held_back()
        logprobs = None if choice.logprob is None else self._logprobs(choice.logprob, choice.top)
        return Increment(
            self._index, text, [token], logprobs, self.finish_reason, self._stop_reason
        )

    def abort(self) -> Increment:
        """It ends here, unwanted; returns the text held back."""
        self.finish_reason = "abort"
        return Increment(self._index, self._held_back(), [], None, "abort")

    def _end_text(self, token: int) -> str:
        """The text that is shown when `token` ends the answer."""
        self.finish_reason = "stop"
        self._stop_reason = None if token in self._eos_ids else token
        shown = self._request.params.include_stop_str_in_output
        return self._held_back(self._detokenizer.push(token) if shown else "")

    def _held_back(self, text: str = "") -> str:
        """`text` and what was held back around it: no more will come."""
        text += self._detokenizer.finish()
        return text if self._stops is None else self._stops.push(text) + self._stops.finish()

    def _complete(self, token: int) -> bool:
        """Whether nothing may come after `token`, by the grammar or by the limit. If the grammar
        goes on, its next mask is begun where one will be needed."""
        if self._matcher is not None:
            self._matcher.accept(token, ahead=self._free is None or self._free.ahead)
            if self._matcher.finished:
                self.finish_reason = "stop"
                return True
        if self.n_tokens >= self._request.max_tokens:
            self.finish_reason = "length"
            return True
        return False

    def _logprobs(
        self, chosen: TokenLogprob, top: Sequence[TokenLogprob]
    ) -> list[dict[int, TokenLogprob]]:
        """The token's log-probability beside those of the likeliest."""
        entries = {entry.token_id: entry for entry in (chosen, *top)}
        for entry in entries.values():
            entry.text = self._tokenizer.token_text(entry.token_id)
        return [entries]


def _free_choice(matcher: Matcher | None, params: SamplingParams) -> FreeChoice | None:
    if matcher is None or not may_be_checked_after(params):
        return None
    from pellucid.sampling.grammar import FreeChoice  # there already, as there is a matcher

    return FreeChoice(matcher, greedy=params.greedy)


def _characters(text: bytes) -> str:
    """Those that are whole at its beginning."""
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        return text[: error.start].decode()
