"""Reading a model's configuration so that nothing in it is ever ignored unseen.

Every key is read, declared harmless, or refused by name: a value that changes what the model
computes must not be dropped because nobody thought of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from pellucid.core.errors import FormatError, UnsupportedError
from pellucid.formats.checkpoint import Checkpoint
from pellucid.formats.shown import shown

T = TypeVar("T", int, float, bool, str)

# Far beyond any model; a damaged file may claim billions, and each layer or head takes memory.
MAX_LAYERS = 4096
MAX_HEADS = 4096
MAX_NUMBER = 1e30

# Keys of a config.json that say nothing about what the model computes.
HARMLESS_CONFIG_KEYS = frozenset(
    """
    architectures model_type auto_map transformers_version torch_dtype dtype use_cache name_or_path
    _name_or_path bos_token_id eos_token_id pad_token_id sep_token_id unk_token_id
    decoder_start_token_id initializer_range init_std attention_dropout attn_dropout attn_pdrop
    embd_pdrop resid_pdrop embedding_dropout hidden_dropout resid_dropout emb_pdrop
    classifier_dropout output_attentions output_hidden_states return_dict gradient_checkpointing
    use_return_dict id2label label2id num_labels _num_labels predict_special_tokens output_past
    problem_type task_specific_params finetuning_task
    router_aux_loss_coef output_router_logits router_jitter_noise pretraining_tp slow_but_exact
    _attn_implementation attn_implementation _from_model_config chunk_size_feed_forward
    tokenizer_class prefix seq_length n_inner_dropout
    unsloth_version unsloth_fixed transformers.js_config is_llama_config _flash_attn_2_enabled
    summary_type summary_use_proj summary_activation summary_proj_to_labels summary_first_dropout
    cache_implementation bias_dropout_fusion masked_softmax_fusion use_cache_quantization
    is_decoder torchscript use_bfloat16 tf_legacy_loss output_scores return_dict_in_generate
    max_length min_length do_sample temperature top_k top_p typical_p num_beams num_beam_groups
    num_return_sequences early_stopping diversity_penalty length_penalty repetition_penalty
    no_repeat_ngram_size encoder_no_repeat_ngram_size bad_words_ids suppress_tokens
    begin_suppress_tokens forced_bos_token_id forced_eos_token_id remove_invalid_values
    exponential_decay_length_penalty
    """.split()
)

# Keys that any configuration may have, with the one value of each that is implemented.
FIXED_CONFIG_VALUES: Mapping[str, Any] = {
    "add_cross_attention": False,
    "is_encoder_decoder": False,
    "pruned_heads": {},
    "rope_interleaved": False,
    "tie_encoder_decoder": False,
    "use_mrope": False,
}


def vocabulary(fields: Fields, checkpoint: Checkpoint) -> int:
    """Rows of a GGUF file's embedding table: the key is often absent, the tensor never."""
    table = checkpoint.tensors.get("token_embd.weight")
    if table is None or len(table.shape) != 2:
        raise FormatError(checkpoint.path, "tensor token_embd.weight", "is missing or not a matrix")
    return fields.whole("vocab_size", table.shape[0])


def equal_heads(fields: Fields, d_model: int, n_heads: int) -> int:
    """Features of a head where the heads together have the model's width."""
    if d_model % n_heads:
        raise FormatError(
            fields.path,
            "attention heads",
            f"a width of {d_model} does not divide into {n_heads} heads",
        )
    return d_model // n_heads


class Fields:
    """A configuration, key by key. `prefix` is put before every key (GGUF's architecture)."""

    def __init__(self, values: Mapping[str, Any], path: str | Path, prefix: str = "") -> None:
        self.path = path
        self.prefix = prefix
        self._values = {
            key[len(prefix) :]: value for key, value in values.items() if key.startswith(prefix)
        }
        self._seen: set[str] = set()

    def __contains__(self, key: str) -> bool:
        return self._values.get(key) is not None

    def given(self, key: str) -> bool:
        """Whether the key is there at all, be it null."""
        return key in self._values

    def raw(self, key: str) -> Any:
        """The value as it stands, or None; the caller checks its form."""
        self._seen.add(key)
        return self._values.get(key)

    def whole(
        self, key: str, default: int | None = None, *, low: int = 1, high: int = 1 << 31
    ) -> int:
        value = self._typed(key, int, default)
        if not low <= value <= high:
            problem = f"{shown(value)} is not within {low} to {high}"
            raise FormatError(self.path, self.prefix + key, problem)
        return value

    def number(
        self,
        key: str,
        default: float | None = None,
        *,
        low: float = -MAX_NUMBER,
        high: float = MAX_NUMBER,
    ) -> float:
        """A finite number from `low` to `high`."""
        value = self._typed(key, float, default)
        if not low <= value <= high:
            problem = f"{value!r} is not a number within {low:g} to {high:g}"
            raise FormatError(self.path, self.prefix + key, problem)
        return value

    def positive(self, key: str, default: float | None = None) -> float:
        """A finite number above 0."""
        value = self._typed(key, float, default)
        if not 0.0 < value < math.inf:
            raise FormatError(
                self.path, self.prefix + key, f"{value!r} is not a finite number above 0"
            )
        return value

    def flag(self, key: str, default: bool | None = None) -> bool:
        return self._typed(key, bool, default)

    def text(self, key: str, default: str | None = None) -> str:
        return self._typed(key, str, default)

    def layers(self, key: str) -> int:
        """How many layers the model has."""
        return self.whole(key, high=MAX_LAYERS)

    def heads(self, key: str, default: int | None = None) -> int:
        """A number of attention heads."""
        return self.whole(key, default, high=MAX_HEADS)

    def everything(self) -> dict[str, Any]:
        """All values, from here on the caller's to account for."""
        self._seen.update(self._values)
        return dict(self._values)

    def section(self, key: str) -> Fields:
        """The configuration nested under `key`, empty when there is none."""
        value = self.raw(key)
        if not isinstance(value, Mapping | None):
            raise FormatError(self.path, self.prefix + key, "is not an object")
        return Fields(value or {}, f"{self.path}: {key}")

    def wholes(self, key: str, count: int) -> tuple[int, ...]:
        """One number for every layer, or one number that serves them all."""
        value = self.raw(key)
        if isinstance(value, np.ndarray):
            value = value.tolist()
        items = value if isinstance(value, list) else [value] * count
        if len(items) != count or not all(_is(item, int) for item in items):
            raise FormatError(self.path, self.prefix + key, f"{count} whole numbers were expected")
        return tuple(int(item) for item in items)

    def either(self, *keys: str) -> str:
        """Which of several names for one value the configuration has; they may not disagree."""
        present = [key for key in keys if key in self]
        values = [self.raw(key) for key in present]
        if any(value != values[0] for value in values):
            raise FormatError(self.path, " and ".join(present), f"are one thing, not {values}")
        return present[0] if present else keys[0]

    def only(self, key: str, *allowed: Any) -> None:
        """Refuse `key` by name unless it is absent or one of the values implemented."""
        value = self.raw(key)
        if value is not None and not any(_equal(value, one) for one in allowed):
            mend = f"only {', '.join(map(repr, allowed))}" if allowed else "leave it out"
            raise UnsupportedError(
                f"{self.path}: {self.prefix}{key} = {shown(value)} is not implemented ({mend})"
            )

    def harmless(self, keys: Iterable[str]) -> None:
        """Keys that change nothing about what the model computes."""
        self._seen.update(keys)

    def finish(self) -> None:
        """Refuse what nobody read. Raises `UnsupportedError` with every such key."""
        unread = sorted(
            self.prefix + key
            for key, value in self._values.items()
            if key not in self._seen and value is not None
        )
        if unread:
            raise UnsupportedError(
                f"{self.path}: this version does not know what to do with "
                f"{', '.join(unread)}, and will not guess"
            )

    def finish_config(self) -> None:
        """`finish` for a config.json or a part of one: passes over the keys that any may have."""
        self.harmless(HARMLESS_CONFIG_KEYS)
        for key, value in FIXED_CONFIG_VALUES.items():
            self.only(key, value)
        self.finish()

    def _typed(self, key: str, kind: type[T], default: T | None) -> T:
        value = self.raw(key)
        if value is None:
            if default is None:
                raise FormatError(self.path, self.prefix + key, "is missing")
            return default
        if not _is(value, kind):
            raise FormatError(
                self.path, self.prefix + key, f"{shown(value)} is not of type {kind.__name__}"
            )
        return kind(value)


def _equal(value: Any, other: Any) -> bool:
    """Equality that tells True from 1, and bears arrays."""
    return isinstance(value, bool) == isinstance(other, bool) and bool(np.all(value == other))


def _is(value: Any, kind: type) -> bool:
    if kind is bool:
        return isinstance(value, bool)
    if isinstance(value, bool):
        return False
    if kind is float:
        # A whole number may be too long for a float.
        return isinstance(value, float) or (isinstance(value, int) and abs(value) <= MAX_NUMBER)
    return isinstance(value, kind)
