"""Attention over pages, one row at a time.

A row's scores cover exactly its visible positions, so the same calls on the same shapes give its
result whether the row came in a prefill, alone in a decode step, or with no cache kept between
steps: the bits are equal by construction.
"""

from __future__ import annotations

import collections.abc
from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pellucid.core.spec import LayerSpec, ModelSpec
from pellucid.costs import KvTypes, pages_for
from pellucid.ops.key_prior import FIRST, KeyPrior
from pellucid.ops.reference.pages import Pages, new_pages
from pellucid.ops.rotary import KEY_BLOCK, key_offsets
from pellucid.ops.step import Sequence, Step

Float32 = NDArray[np.float32]
Pairs = collections.abc.Sequence[tuple[int, int]]


@dataclass(slots=True)
class LayerCache:
    """Keys and values of one layer, by pages.

    Keys in blocks are kept less the average that they are known to have over each block of
    positions, so that their few bits are for what differs between tokens (models with a bias of
    keys have features of a hundred times the others' size in it).
    """

    keys: Pages
    values: Pages
    known: Float32 | None = None  # offsets of the first key blocks

    def offsets(self, layer: LayerSpec, prior: KeyPrior | None, end: int) -> Float32:
        """What is kept less of the keys of positions up to `end`: [kv_heads, end, head_dim]."""
        shape = (layer.n_kv_heads, end, layer.head_dim)
        if prior is None or not self.keys.in_blocks:
            return np.broadcast_to(np.float32(0), shape)
        n_blocks = -(-end // KEY_BLOCK)
        if self.known is None or len(self.known) < n_blocks:
            self.known = key_offsets(layer.rope, prior.mean, layer.head_dim, range(n_blocks))
        rows = np.repeat(self.known, KEY_BLOCK, axis=0)[:end]
        if prior.first is not None:
            rows[:FIRST] = prior.first
        return rows.reshape(end, layer.n_kv_heads, -1).transpose(1, 0, 2)


class KVCache:
    """Pages of every layer. Which sequence holds which page is not its business."""

    def __init__(self, spec: ModelSpec, n_pages: int, page_size: int, types: KvTypes) -> None:
        self.n_pages = n_pages
        self.layers = []
        for layer in spec.layers:
            shape = (n_pages, page_size, layer.n_kv_heads)
            keys = new_pages(types.keys, shape, layer.head_dim)
            self.layers.append(LayerCache(keys, new_pages(types.values, shape, layer.head_dim)))

    @property
    def nbytes(self) -> int:
        return sum(layer.keys.nbytes + layer.values.nbytes for layer in self.layers)

    def copy_pages(self, pairs: Pairs) -> None:
        """`Ops.copy_pages`."""
        _check_copies(pairs, self.n_pages)
        sources, targets = [source for source, _ in pairs], [target for _, target in pairs]
        for layer in self.layers:
            layer.keys.copy(sources, targets)
            layer.values.copy(sources, targets)


def _check_copies(pairs: Pairs, n_pages: int) -> None:
    sources = {source for source, _ in pairs}
    times = Counter(target for _, target in pairs)
    for i, (source, target) in enumerate(pairs):
        named = f"copy_pages: pair {i}, {source} to {target}"
        for page in (source, target):
            if not 0 <= page < n_pages:
                raise ValueError(f"{named}: page {page} is not among the cache's {n_pages}")
        if times[target] > 1:
            raise ValueError(f"{named}: another pair has the same target")
        if target in sources:
            raise ValueError(f"{named}: the target is also a source")


def attend(
    q: Float32,
    k: Float32,
    v: Float32,
    cache: LayerCache,
    layer: LayerSpec,
    step: Step,
    prior: KeyPrior | None = None,
) -> Float32:
    """`Ops.attention` on one layer's pages."""
    kv_shape = (-1, layer.n_kv_heads, layer.head_dim)
    keys, values = k.reshape(kv_shape), v.reshape(kv_shape)
    group = layer.n_heads // layer.n_kv_heads
    # Query heads that share a kv head stand together: [T, kv_heads, group, head_dim].
    queries = q.reshape(-1, layer.n_kv_heads, group, layer.head_dim)
    slopes = slopes_of(layer)
    out = np.empty_like(queries)
    for sequence in step.sequences:
        rows = slice(sequence.first_row, sequence.first_row + sequence.length)
        offsets = cache.offsets(layer, prior, sequence.start + sequence.length)
        kept = keys[rows] - offsets[:, sequence.start :].transpose(1, 0, 2)
        feedback = None if prior is None else prior.feedback
        _store(cache, sequence, step.page_size, kept, values[rows], feedback)
        # [kv_heads, end, head_dim]
        seen_keys = _gather(cache.keys, sequence, step.page_size) + offsets
        seen_values = _gather(cache.values, sequence, step.page_size)
        for offset in range(sequence.length):
            i = sequence.start + offset
            first = 0 if layer.window is None else max(0, i + 1 - layer.window)
            out[sequence.first_row + offset] = _attend_row(
                queries[sequence.first_row + offset],
                seen_keys[:, first : i + 1],
                seen_values[:, first : i + 1],
                slopes,
                layer,
            )
    return out.reshape(q.shape)


def slopes_of(layer: LayerSpec) -> Float32:
    """ALiBi's slopes as `row_weights` takes them; empty where there are none."""
    return np.asarray(layer.alibi_slopes, np.float32).reshape(layer.n_kv_heads, -1, 1)


def _attend_row(
    q: Float32, keys: Float32, values: Float32, slopes: Float32, layer: LayerSpec
) -> Float32:
    """q: [kv_heads, group, head_dim]; keys, values: [kv_heads, visible, head_dim]."""
    return np.asarray(row_weights(q, keys, slopes, layer) @ values, np.float32)


def row_weights(q: Float32, keys: Float32, slopes: Float32, layer: LayerSpec) -> Float32:
    """What share of each visible value a row takes, float32 [kv_heads, group, visible].

    q: [kv_heads, group, head_dim]; keys: [kv_heads, visible, head_dim], the row's own position
    last; slopes: [kv_heads, group, 1], or empty where there are none.
    """
    scores = q @ keys.transpose(0, 2, 1) * np.float32(layer.attention_scale)
    if layer.attention_softcap is not None:
        cap = np.float32(layer.attention_softcap)
        scores = cap * np.tanh(scores / cap)
    if slopes.size:
        visible = keys.shape[1]
        scores = scores + slopes * np.arange(1 - visible, 1, dtype=np.float32)
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    weights /= weights.sum(axis=2, keepdims=True)
    return np.asarray(weights, np.float32)


def _store(
    cache: LayerCache,
    sequence: Sequence,
    page_size: int,
    keys: Float32,
    values: Float32,
    feedback: Float32 | None,
) -> None:
    positions = np.arange(sequence.start, sequence.start + sequence.length)
    pages = np.asarray(sequence.pages)[positions // page_size]
    slots = positions % page_size
    cache.keys.store(pages, slots, keys, feedback)
    cache.values.store(pages, slots, values)


def _gather(side: Pages, sequence: Sequence, page_size: int) -> Float32:
    """Every position up to the span's end, [kv_heads, end, head_dim], contiguous."""
    end = sequence.start + sequence.length
    n_pages = pages_for(end, page_size)
    found = side.read(np.asarray(sequence.pages[:n_pages]))  # [pages, slots, kv_heads, head_dim]
    rows = found.reshape(-1, *found.shape[2:])[:end]
    return np.ascontiguousarray(rows.transpose(1, 0, 2))
