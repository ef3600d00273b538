"""Reading a model's configuration so that nothing in it is ever ignored unseen.

Every key is read, declared harmless, or refused by name: a value that changes what the model
computes must not be dropped because nobody thought of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pellucid.core.errors import FormatError, UnsupportedError
from pellucid.formats.checkpoint import Checkpoint

T = TypeVar("T", int, float, bool, str)

_MISSING = object()

# Keys of a config.json that say nothing about what the model computes.
HARMLESS_CONFIG_KEYS = frozenset(
    """
    architectures model_type auto_map transformers_version torch_dtype dtype use_cache name_or_path
    _name_or_path bos_token_id eos_token_id pad_token_id sep_token_id unk_token_id
    decoder_start_token_id initializer_range init_std attention_dropout attn_dropout attn_pdrop
    embd_pdrop resid_pdrop embedding_dropout hidden_dropout resid_dropout emb_pdrop
    classifier_dropout output_attentions output_hidden_states return_dict gradient_checkpointing
    use_return_dict id2label label2id problem_type task_specific_params finetuning_task
    router_aux_loss_coef output_router_logits router_jitter_noise pretraining_tp slow_but_exact
    _attn_implementation attn_implementation _from_model_config chunk_size_feed_forward
    is_encoder_decoder tokenizer_class prefix max_length temperature top_k top_p
    do_sample seq_length n_inner_dropout unsloth_version unsloth_fixed transformers.js_config
    summary_type summary_use_proj summary_activation summary_proj_to_labels summary_first_dropout
    cache_implementation bias_dropout_fusion masked_softmax_fusion use_cache_quantization
    """.split()
)


def vocabulary(fields: Fields, checkpoint: Checkpoint) -> int:
    """Rows of a GGUF file's embedding table: the key is often absent, the tensor never."""
    table = checkpoint.tensors.get("token_embd.weight")
    if table is None or len(table.shape) != 2:
        raise FormatError(checkpoint.path, "tensor token_embd.weight", "is missing or not a matrix")
    return fields.whole("vocab_size", table.shape[0])


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

    def raw(self, key: str) -> Any:
        """The value as it stands, or None; the caller checks its form."""
        self._seen.add(key)
        return self._values.get(key)

    def whole(
        self, key: str, default: int | None = None, *, low: int = 1, high: int = 1 << 31
    ) -> int:
        value = self._typed(key, int, default)
        if not low <= value <= high:
            raise FormatError(
                self.path, self.prefix + key, f"{value} is not within {low} to {high}"
            )
        return value

    def number(self, key: str, default: float | None = None) -> float:
        return self._typed(key, float, default)

    def flag(self, key: str, default: bool | None = None) -> bool:
        return self._typed(key, bool, default)

    def text(self, key: str, default: str | None = None) -> str:
        return self._typed(key, str, default)

    def wholes(self, key: str, count: int) -> tuple[int, ...]:
        """One number for every layer, or one number that serves them all."""
        value = self.raw(key)
        items = [value] * count if not hasattr(value, "__len__") else list(value)
        if len(items) != count or not all(_is(item, int) for item in items):
            raise FormatError(self.path, self.prefix + key, f"{count} whole numbers were expected")
        return tuple(int(item) for item in items)

    def only(self, key: str, *allowed: Any) -> None:
        """Refuse `key` by name unless it is absent or one of the values implemented."""
        value = self.raw(key)
        if value is not None and value not in allowed:
            raise UnsupportedError(
                f"{self.path}: {self.prefix}{key} = {value!r} is not implemented "
                f"(only {', '.join(map(repr, allowed))})"
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

    def _typed(self, key: str, kind: type[T], default: T | None) -> T:
        value = self.raw(key)
        if value is None:
            if default is None:
                raise FormatError(self.path, self.prefix + key, "is missing")
            return default
        if not _is(value, kind):
            raise FormatError(
                self.path, self.prefix + key, f"{value!r} is not of type {kind.__name__}"
            )
        return kind(value)


def _is(value: Any, kind: type) -> bool:
    if kind is bool:
        return isinstance(value, bool)
    if isinstance(value, bool):
        return False
    if kind is float:
        return isinstance(value, int | float)
    return isinstance(value, kind)
