"""Caches of keys and values, as large as an engine's limits say."""

from __future__ import annotations

from pellucid.core.errors import BadInput, PellucidError
from pellucid.models.registry import Model
from pellucid.scheduling import Limits


def new_cache(model: Model, limits: Limits) -> object:
    """Storage for the keys and values of every page. Raises `BadInput` for pages of a size that the
    backend cannot lay out, `PellucidError` where the system gives no memory."""
    try:
        return model.ops.new_cache(model.spec, limits.n_pages, limits.page_size)
    except ValueError as error:
        raise BadInput(f"page_size {limits.page_size}: {error}") from error
    except MemoryError as error:
        raise PellucidError(
            f"the system gives no memory for {limits.n_pages} pages of KV cache: lower "
            "kv_cache_memory_bytes, max_model_len or max_num_seqs"
        ) from error
