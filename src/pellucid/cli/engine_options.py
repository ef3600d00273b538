"""The flags that say how a model is run, and the engine made from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pellucid.cli.arguments import find_model
from pellucid.cli.output import note

if TYPE_CHECKING:
    from pellucid import LLM

Backend = Annotated[
    str | None,
    typer.Option("--backend", help="What computes: native or reference.", show_default="native"),
]
Threads = Annotated[
    int | None, typer.Option("--threads", help="Threads to compute with.", show_default=False)
]
MaxModelLen = Annotated[
    int | None,
    typer.Option(
        "--max-model-len", help="Context: prompt and answer. [the model's]", show_default=False
    ),
]
NoKvCache = Annotated[
    bool,
    typer.Option("--no-kv-cache", help="Compute everything anew for each token: the naive loop."),
]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Say on standard error what is decided and used.")
]


@dataclass(frozen=True, slots=True)
class EngineOptions:
    backend: str | None = None
    threads: int | None = None
    max_model_len: int | None = None
    kv_cache: bool = True
    offline: bool = False
    verbose: bool = False

    def open(self, model: str) -> LLM:
        """The model, ready. Raises what finding, opening and loading it raise."""
        from pellucid import LLM

        path = find_model(model, self.offline)
        wishes: dict[str, Any] = {
            "backend": self.backend,
            "threads": self.threads,
            "max_model_len": self.max_model_len,
        }
        given = {name: value for name, value in wishes.items() if value is not None}
        progress = _Notes() if self.verbose else None
        return LLM(path, kv_cache=self.kv_cache, progress=progress, **given)


class _Notes:
    """What the engine says while it loads, without bars: the model is here already."""

    def note(self, message: str) -> None:
        note(message)

    def bar(self, label: str, total: int) -> Any:
        from pellucid.hub import SilentProgress

        return SilentProgress().bar(label, total)
