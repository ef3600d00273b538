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

from pellucid.core.outputs import FinishReason, Increment, TokenChoice, TokenLogprob
from pellucid.engine.request import Request
from pellucid.sampling import Draw, History, sample_seed
from pellucid.text import Detokenizer, StopMatcher, Tokenizer


class Answer:
    """Answer `index` of `request`."""

    def __init__(self, request: Request, index: int, tokenizer: Tokenizer) -> None:
        params = request.params
        self._request = request
        self._index = index
        self._tokenizer = tokenizer
        self._seed = sample_seed(request.seed, index)
        self._history = History(request.prompt_token_ids)
        self._detokenizer = Detokenizer(tokenizer, params.skip_special_tokens, continuation=True)
        self._stops = StopMatcher(params.stop, include=params.include_stop_str_in_output)
        self._matcher = None if request.grammar is None else request.grammar.start()
        ignored = params.ignore_eos and self._matcher is None
        self._eos_ids = frozenset(() if ignored else tokenizer.eos_ids)
        self._stop_ids = frozenset(params.stop_token_ids)
        self._end_ids = tuple(sorted(self._eos_ids | self._stop_ids))
        self.n_tokens = 0
        self.finish_reason: FinishReason | None = None
        self._stop_reason: int | str | None = None

    @property
    def finished(self) -> bool:
        return self.finish_reason is not None

    def draw(self) -> Draw:
        """What the choice of its next token depends on.

        Raises `BadInput` when its grammar cannot be followed any further.
        """
        params = self._request.params
        position = len(self._request.prompt_token_ids) + self.n_tokens
        ends, mask = self._end_ids, None
        if self._matcher is not None:
            may_end = not params.ignore_eos and self.n_tokens >= params.min_tokens
            mask = self._matcher.mask(may_end)
            ends = tuple(self._stop_ids - self._eos_ids)  # of the others the mask has decided
        return Draw(params, self._seed, position, self._history, ends, mask)

    def take(self, choice: TokenChoice) -> Increment:
        """Another token was chosen; returns what it adds.

        Raises `BadInput` when its grammar cannot be followed any further.
        """
        token = choice.token_id
        self.n_tokens += 1
        self._history.append(token)
        text = self._text_of(token)
        logprobs = self._logprobs(choice)
        return Increment(
            self._index, text, [token], logprobs, self.finish_reason, self._stop_reason
        )

    def abort(self) -> Increment:
        """It ends here, unwanted; returns the text held back."""
        text = self._stops.push(self._detokenizer.finish()) + self._stops.finish()
        self.finish_reason = "abort"
        return Increment(self._index, text, [], None, "abort")

    def _text_of(self, token: int) -> str:
        """The text that `token` sets free; settles whether it ends the answer."""
        params = self._request.params
        if token in self._end_ids:
            self.finish_reason = "stop"
            self._stop_reason = None if token in self._eos_ids else token
            shown = self._detokenizer.push(token) if params.include_stop_str_in_output else ""
            return self._stops.push(shown + self._detokenizer.finish()) + self._stops.finish()
        text = self._detokenizer.push(token)
        if self.n_tokens > params.min_tokens:
            text = self._stops.push(text)
        if self._stops.matched is not None:
            self.finish_reason, self._stop_reason = "stop", self._stops.matched
        elif (complete := self._completed_by(token)) or self.n_tokens >= self._request.max_tokens:
            self.finish_reason = "stop" if complete else "length"
            text += self._stops.push(self._detokenizer.finish()) + self._stops.finish()
        return text

    def _completed_by(self, token: int) -> bool:
        """Whether the grammar allows nothing after `token`; if it does, the next mask is begun."""
        if self._matcher is None:
            return False
        self._matcher.accept(token)
        return self._matcher.finished

    def _logprobs(self, choice: TokenChoice) -> list[dict[int, TokenLogprob]] | None:
        """The token's log-probability beside those of the likeliest, if they were asked for."""
        if choice.logprob is None:
            return None
        entries = {entry.token_id: entry for entry in (choice.logprob, *choice.top)}
        for entry in entries.values():
            entry.text = self._tokenizer.token_text(entry.token_id)
        return [entries]
