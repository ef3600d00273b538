"""What a benchmark found, as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pellucid.bench.forward import Measured
from pellucid.bench.speculation import SpeculationReport
from pellucid.bench.whole import WholeMeasured
from pellucid.ops.native.peaks import Peaks


@dataclass(frozen=True, slots=True)
class Report:
    """`quantization`: the type that weights were quantised to at load. `arithmetic` names the peak
    that operations are held against: int8 or f32."""

    model: str
    quantization: str | None
    backend: str
    threads: int
    kv_dtype: str
    activations: str
    weights_bytes: int
    arithmetic: str
    measured: tuple[Measured, ...]
    whole: tuple[WholeMeasured, ...]
    speculation: SpeculationReport | None = None

    @property
    def peaks(self) -> Peaks:
        """The best seen in the whole run."""
        return best_peaks(self.measured)


def best_peaks(measured: Sequence[Measured]) -> Peaks:
    """Of each kind, beside any of the cases; there must be one."""
    seen = [peaks for one in measured for peaks in one.peaks]
    return Peaks(
        max(peaks.read for peaks in seen),
        max(peaks.int8 for peaks in seen),
        max(peaks.f32 for peaks in seen),
    )


def report_json(report: Report) -> dict[str, Any]:
    """All of it, for machines: rates in bytes, operations and tokens a second."""
    return {
        "model": report.model,
        "quantization": report.quantization,
        "backend": report.backend,
        "threads": report.threads,
        "kv_cache_dtype": report.kv_dtype,
        "activations": report.activations,
        "weights_bytes": report.weights_bytes,
        "peaks": report.peaks.to_json() if report.measured else None,
        "cases": [_case_json(measured, report.arithmetic) for measured in report.measured],
        "whole_engine": [_whole_json(whole) for whole in report.whole],
        "speculation": None if report.speculation is None else report.speculation.to_json(),
    }


def _case_json(measured: Measured, arithmetic: str) -> dict[str, Any]:
    return {
        "name": measured.case.name,
        **asdict(measured.case),
        "steps": measured.n_steps,
        "cost": asdict(measured.cost),
        "tokens_per_second": measured.tokens_per_second.to_json(),
        "step_seconds": measured.step_seconds.to_json(),
        "weight_bytes_per_second": measured.weights_per_second.to_json(),
        "share_of_read_peak": measured.share_of_read.to_json(),
        "operations_per_second": measured.operations_per_second.to_json(),
        "arithmetic_peak": arithmetic,
        "share_of_arithmetic_peak": measured.share_of_arithmetic(arithmetic).to_json(),
        "peaks": [peaks.to_json() for peaks in measured.peaks],
    }


def _whole_json(whole: WholeMeasured) -> dict[str, Any]:
    share = whole.python_share
    return {
        "batch": whole.batch,
        "steps": whole.n_steps,
        "tokens_per_second": whole.tokens_per_second.to_json(),
        "step_seconds": whole.step_seconds.to_json(),
        "python_share": None if share is None else share.to_json(),
    }
