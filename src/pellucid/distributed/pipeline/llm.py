"""PipelineLLM: an `LLM` whose layers are shared out among Ray actors."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pellucid.core.errors import BadInput
from pellucid.distributed.cluster import connected
from pellucid.distributed.extra import ray_for
from pellucid.engine.defaults import default_params
from pellucid.engine.llm import LLM, Loading
from pellucid.engine.loading import Loaded, open_text, page_of_keys, weights_in_memory
from pellucid.engine.memory import available_memory, in_words
from pellucid.engine.sizing import limits_for
from pellucid.formats import open_checkpoint
from pellucid.hub import DEFAULT_MODEL
from pellucid.models.registry import read_spec
from pellucid.models.stage import even_ranges
from pellucid.ops import Ops

if TYPE_CHECKING:
    from pellucid.distributed.pipeline.parts import Part
    from pellucid.models.registry import Model

_NOT_HERE = ("quantization", "speculative")


def check_stages(stages: int, arguments: Mapping[str, Any]) -> None:
    """What can be said before a cluster is started. Raises `BadInput`."""
    if stages < 1:
        raise BadInput(f"stages must be 1 or more, not {stages}")
    for name in _NOT_HERE:
        if arguments.get(name) is not None:
            raise BadInput(f"{name}: the stages of a pipeline have none of it: leave it out")


class PipelineLLM(LLM):
    """Answers as an `LLM` in one process does, bit for bit.

    `stages` actors each hold a range of the layers, and their pages; a cluster must be connected
    (`pellucid.distributed.cluster.connected`), and the model's file must be there under the same
    path on every node. `cpus` is what Ray counts for each; one that has not started in `start_s`,
    or says for `silence_s` not that it lives, counts as gone. Other arguments are those of `LLM`;
    `threads` are each stage's. Raises as `LLM`, and `BadInput` for more stages than layers or an
    argument that stages do not have; then and later `Unavailable` where a stage ends.
    """

    def __init__(
        self,
        model: str | Path = DEFAULT_MODEL,
        *,
        stages: int = 2,
        cpus: float = 1,
        silence_s: float = 30.0,
        start_s: float = 180.0,
        **arguments: Any,
    ) -> None:
        ray_for("a pipeline")
        check_stages(stages, arguments)
        self._cluster = ExitStack()
        self._stages = stages
        self._cpus = cpus
        self._silence_s = silence_s
        self._start_s = start_s
        self._parts: list[Part] = []
        self._settings = {
            "name": arguments.get("backend", "native"),
            "threads": arguments.get("threads"),
            "kv_dtype": arguments.get("kv_cache_dtype"),
            "activations": arguments.get("activations"),
        }
        try:
            super().__init__(model, **arguments)
        except BaseException:
            self._end_stages()
            raise

    def close(self) -> None:
        """As `LLM.close`; the stages end too, and the cluster if it came with `connect`."""
        super().close()
        self._end_stages()
        self._cluster.close()

    @classmethod
    def connect(
        cls,
        model: str | Path = DEFAULT_MODEL,
        *,
        ray_address: str | None = None,
        stages: int = 2,
        cpus: float | None = None,
        **arguments: Any,
    ) -> PipelineLLM:
        """With a cluster of its own: that at `ray_address`, or one on this machine. It ends with
        `close`. `cpus` that are None are as many as a stage's threads. Raises as `connected` and as
        this class."""
        check_stages(stages, arguments)
        with ExitStack() as stack:
            what = "--pipeline-parallel-size"
            cluster = stack.enter_context(connected(ray_address, stages, what, prints=True))
            if cpus is None:
                cpus = cluster.asks(arguments.get("threads"))
                cluster.check_room(stages, cpus, "stages")
            self = cls(model, stages=stages, cpus=cpus, **arguments)
            self._cluster = stack.pop_all()
        return self

    def _load(self, ops: Ops, loading: Loading) -> Loaded:
        from pellucid.distributed.pipeline.model import PipelinedModel
        from pellucid.distributed.pipeline.parts import Parts

        asked = loading.asked
        with open_checkpoint(self.model_path) as checkpoint:
            _, spec = read_spec(checkpoint, asked.max_model_len)
            ranges = even_ranges(spec.n_layers, self._stages)
            weights, _ = weights_in_memory(checkpoint, ops)
            budget = loading.kv_budget or max(0, available_memory() - weights) // 2
            limits = limits_for(spec, asked, budget, ops.kv_dtype, ops.kv_lanes)
            defaults = default_params(checkpoint)
            tokenizer, templates = open_text(checkpoint)
        loading.note(f"{len(ranges)} stages; KV cache: up to {in_words(budget)} in all of them")
        self._parts = self._start(ranges, limits.max_model_len, limits.max_num_batched_tokens)
        model = PipelinedModel(spec, ops, Parts(self._parts, self._silence_s, self._start_s))
        page = page_of_keys(spec, ops, tokenizer)
        if page:
            model.learn_keys(page)
        return Loaded(cast("Model", model), tokenizer, templates, limits, defaults)

    def _start(self, ranges: list[Any], context: int, max_rows: int) -> list[Part]:
        import ray

        from pellucid.distributed.pipeline.actor import StageActor, StageOpening
        from pellucid.distributed.pipeline.parts import Part

        make = ray.remote(StageActor).options(
            num_cpus=self._cpus, scheduling_strategy="SPREAD", max_concurrency=2
        )
        path = str(self.model_path)
        return [
            Part(make.remote(StageOpening(path, one, context, max_rows, self._settings)), one)
            for one in ranges
        ]

    def _end_stages(self) -> None:
        import ray

        parts, self._parts = self._parts, []
        for part in parts:
            with suppress(ray.exceptions.RayError):  # one whose node is gone
                ray.kill(part.actor)
