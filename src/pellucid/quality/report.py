"""What a comparison found, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pellucid.bench.spread import Spread
from pellucid.quality.divergence import PerToken
from pellucid.quality.intervals import BLOCK, DRAWS, LEVEL, Bootstrap, Figure


@dataclass(frozen=True, slots=True)
class Divergence:
    """From the model that others are held against: KL divergence of the next token in nats, its
    mean and what 99 % of all tokens are not above; the share of tokens where both find the same
    likeliest; and this perplexity over that one's."""

    mean: Figure
    p99: Figure
    same_likeliest: Figure
    perplexity_ratio: Figure


@dataclass(frozen=True, slots=True)
class Speed:
    """Decode of one sequence: tokens a second, and bytes of weights a second over those of a plain
    read of as many."""

    tokens_per_second: Spread
    share_of_read: Spread


@dataclass(frozen=True, slots=True)
class Measured:
    """One model. `quantization`: what was quantised to at load. `bytes_per_token` is the least that
    decoding one token moves at the context of the report, by `pellucid.costs`."""

    name: str
    path: str
    quantization: str | None
    kv_dtype: str
    activations: str
    weights_bytes: int
    bytes_per_token: int
    perplexity: Figure
    divergence: Divergence | None
    speed: Speed | None


@dataclass(frozen=True, slots=True)
class Report:
    """`tokens` of the text were scored, each from at most `context` positions. The first of
    `measured` is what the others are held against, if `compared`."""

    text: str
    tokens: int
    context: int
    backend: str
    threads: int
    compared: bool
    measured: tuple[Measured, ...]


def figures(
    found: PerToken, against: PerToken | None, bootstrap: Bootstrap
) -> tuple[Figure, Divergence | None]:
    """Perplexity, and divergence from `against`, with their intervals."""
    perplexity = bootstrap.mean(found.surprise, np.exp)
    if against is None or found.divergence is None or found.same is None:
        return perplexity, None
    return perplexity, Divergence(
        mean=bootstrap.mean(found.divergence),
        p99=bootstrap.quantile(found.divergence, 0.99),
        same_likeliest=bootstrap.mean(found.same.astype(np.float64)),
        perplexity_ratio=bootstrap.mean(found.surprise - against.surprise, np.exp),
    )


def report_json(report: Report) -> dict[str, Any]:
    """All of it, for machines: divergences in nats, sizes in bytes."""
    return {
        "text": report.text,
        "tokens": report.tokens,
        "context": report.context,
        "backend": report.backend,
        "threads": report.threads,
        "against": report.measured[0].name if report.compared else None,
        "intervals": {"level": LEVEL, "block_tokens": BLOCK, "draws": DRAWS},
        "models": [_model_json(measured) for measured in report.measured],
    }


def report_of(found: dict[str, Any]) -> Report:
    """What `report_json` made, as a report again."""
    return Report(
        text=found["text"],
        tokens=found["tokens"],
        context=found["context"],
        backend=found["backend"],
        threads=found["threads"],
        compared=found["against"] is not None,
        measured=tuple(_measured_of(model) for model in found["models"]),
    )


def _measured_of(model: dict[str, Any]) -> Measured:
    divergence, rate = model["divergence"], model["tokens_per_second"]
    return Measured(
        name=model["name"],
        path=model["path"],
        quantization=model["quantization"],
        kv_dtype=model["kv_cache_dtype"],
        activations=model["activations"],
        weights_bytes=model["weights_bytes"],
        bytes_per_token=model["bytes_per_token"],
        perplexity=Figure(**model["perplexity"]),
        divergence=divergence and Divergence(**{k: Figure(**v) for k, v in divergence.items()}),
        speed=rate
        and Speed(Spread.of(rate["values"]), Spread.of(model["share_of_read_peak"]["values"])),
    )


def _model_json(measured: Measured) -> dict[str, Any]:
    divergence, speed = measured.divergence, measured.speed
    return {
        "name": measured.name,
        "path": measured.path,
        "quantization": measured.quantization,
        "kv_cache_dtype": measured.kv_dtype,
        "activations": measured.activations,
        "weights_bytes": measured.weights_bytes,
        "bytes_per_token": measured.bytes_per_token,
        "perplexity": measured.perplexity.to_json(),
        "divergence": divergence
        and {
            "mean": divergence.mean.to_json(),
            "p99": divergence.p99.to_json(),
            "same_likeliest": divergence.same_likeliest.to_json(),
            "perplexity_ratio": divergence.perplexity_ratio.to_json(),
        },
        "tokens_per_second": speed and speed.tokens_per_second.to_json(),
        "share_of_read_peak": speed and speed.share_of_read.to_json(),
    }
