"""What callers hand in: prompts in every accepted form, and parameters, checked against a model."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

from pellucid.core.errors import BadInput, PromptTooLong
from pellucid.core.params import SamplingParams
from pellucid.text import Tokenizer

_FORMS = 'a prompt is a string, {"prompt": ...}, {"prompt_token_ids": [...]} or a list of ids'


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt in tokens, with the text it came from and the seconds that took."""

    token_ids: tuple[int, ...]
    text: str | None = None
    seconds: float = field(default=0.0, compare=False)


class Inputs:
    """Checks inputs against one model: its tokenizer, the rows of its table and its context."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, max_model_len: int) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self.max_model_len = max_model_len

    def prompts(self, given: Any, parse_special: bool) -> list[Prompt]:
        """One prompt or a list of them. Raises `BadInput` naming the one that is wrong."""
        return [self.prompt(one, parse_special) for one in _one_each(given)]

    def prompt(self, given: Any, parse_special: bool) -> Prompt:
        """One prompt, in any of the accepted forms.

        Raises `BadInput` for another form, an empty prompt or an id out of range, and
        `PromptTooLong` when no room for an answer is left.
        """
        prompt = self._in_tokens(given, parse_special, self.max_model_len)
        if len(prompt.token_ids) >= self.max_model_len:
            raise PromptTooLong(len(prompt.token_ids), self.max_model_len)
        return prompt

    def texts(self, given: Any, parse_special: bool) -> list[Prompt]:
        """One text or a list of them, nothing to come after. Raises as `text`."""
        return [self.text(one, parse_special) for one in _one_each(given)]

    def text(self, given: Any, parse_special: bool) -> Prompt:
        """A prompt that nothing need come after. Raises as `prompt`; whether it fits is for the
        engine to say, but for a text that surely does not."""
        return self._in_tokens(given, parse_special, self.max_model_len + 1)

    def _in_tokens(self, given: Any, parse_special: bool, too_many: int) -> Prompt:
        """Raises `PromptTooLong` before a text is tokenised that is no fewer than `too_many`."""
        ids, text = given, None
        if isinstance(given, Mapping):
            ids = _only_value(given)
            if "prompt" in given and not isinstance(ids, str):
                raise BadInput(f'"prompt" must be a string, not {type(ids).__name__}')
        if isinstance(ids, str):
            text = ids
            fewest = self._tokenizer.surely(text, too_many)
            if fewest is not None:
                raise PromptTooLong(fewest, self.max_model_len, at_least=True)
            ids = self._tokenizer.encode(text, parse_special=parse_special)
        return Prompt(self.token_ids(ids), text)

    def token_ids(self, ids: Any) -> tuple[int, ...]:
        """Ids that the model has a row for, at least one. Raises `BadInput` naming a wrong one."""
        if isinstance(ids, str | bytes | bytearray | Set) or not isinstance(ids, Iterable):
            raise BadInput(f"{_FORMS}; not {type(ids).__name__}")
        checked = tuple(ids)
        if not self._are_ids(checked):
            checked = tuple(self._token_id(id_, f"position {i}") for i, id_ in enumerate(checked))
        if not checked:
            raise BadInput(
                "the prompt is empty, and this model has no token that begins a text: "
                "give it at least one token"
            )
        return checked

    def params(self, params: SamplingParams) -> SamplingParams:
        """A copy of our own, so that a caller who changes theirs later changes nothing here.

        Raises `BadInput` naming a field that this vocabulary cannot honour.
        """
        if not isinstance(params, SamplingParams):
            raise BadInput(f"sampling_params must be SamplingParams, not {type(params).__name__}")
        for token in params.logit_bias:
            self._token_id(token, f"logit_bias[{token}]")
        for token in params.stop_token_ids:
            self._token_id(token, "stop_token_ids")
        return replace(params)

    def room(self, prompt: Prompt, max_tokens: int | None) -> int:
        """How many tokens an answer may have: `max_tokens`, or fewer up to the context's end."""
        left = self.max_model_len - len(prompt.token_ids)
        return left if max_tokens is None else min(left, max_tokens)

    def _are_ids(self, ids: tuple[Any, ...]) -> bool:
        """Whether all of them are, told without a call for each."""
        return set(map(type, ids)) == {int} and min(ids) >= 0 and max(ids) < self._vocab_size

    def _token_id(self, value: Any, where: str) -> int:
        try:
            token = operator.index(value)
        except TypeError:
            raise BadInput(f"{where}: a token id is a whole number, not {value!r}") from None
        if isinstance(value, bool) or not 0 <= token < self._vocab_size:
            raise BadInput(
                f"{where}: {value!r} is no token id of this model, which has ids 0 to "
                f"{self._vocab_size - 1}"
            )
        return token


def pair_params(
    given: SamplingParams | Sequence[SamplingParams] | None,
    default: SamplingParams,
    n_prompts: int,
) -> list[SamplingParams]:
    """Parameters for each prompt: one for all, or one each. Raises `BadInput` at a miscount."""
    if given is None:
        given = default
    if isinstance(given, SamplingParams):
        return [given] * n_prompts
    if not isinstance(given, Sequence):
        raise BadInput(f"sampling_params must be SamplingParams, not {type(given).__name__}")
    if len(given) != n_prompts:
        raise BadInput(
            f"{len(given)} sampling_params for {n_prompts} prompts: give one, or one for each"
        )
    return list(given)


def pair_priorities(given: Sequence[int] | None, n_prompts: int) -> Sequence[int]:
    """A priority for each prompt, 0 unless given. Raises `BadInput` at a miscount."""
    if given is None:
        return [0] * n_prompts
    if isinstance(given, str | bytes) or not isinstance(given, Sequence):
        raise BadInput(f"priority must be a list of whole numbers, not {given!r}")
    if len(given) != n_prompts:
        raise BadInput(f"{len(given)} priorities for {n_prompts} prompts: give one for each")
    return given


def _one_each(given: Any) -> Sequence[Any]:
    """The prompts in what may be one or many."""
    if isinstance(given, str | Mapping) or _is_ids(given):
        return [given]
    if not isinstance(given, Sequence):
        raise BadInput(f"{_FORMS}; not {type(given).__name__}")
    return given


def _is_ids(given: Any) -> bool:
    """A flat list of token ids is one prompt; an empty list is no prompt at all."""
    if isinstance(given, bytes | bytearray):
        return True  # to be refused as one prompt, not read as ids
    return isinstance(given, Sequence) and bool(given) and hasattr(given[0], "__index__")


def _only_value(prompt: Mapping[str, Any]) -> Any:
    if len(prompt) != 1 or next(iter(prompt)) not in ("prompt", "prompt_token_ids"):
        raise BadInput(f"{_FORMS}; not one with keys {', '.join(map(repr, prompt)) or 'none'}")
    return next(iter(prompt.values()))
