"""A model in stages, on a cluster of two nodes."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pellucid import LLM, AsyncLLM, BadInput, PellucidError, SamplingParams
from pellucid.core.errors import Unavailable
from pellucid.distributed.pipeline.llm import PipelineLLM
from tests.cluster.nodes import PATIENCE_S, cluster_of, processes_named, signal_all
from tests.python.engine.tiny import write_model

ARGUMENTS = {"kv_cache_memory_bytes": 1 << 20, "seed": 0, "threads": 1}
STAGE = "ray::StageActor"


def test_stages(tmp_path: Path, smollm2_path: Path) -> None:
    """In one cluster, which takes longer to start than most of this does."""
    tiny = write_model(tmp_path / "tiny.gguf", layers=5)
    with cluster_of(2, 2):
        for backend in "native", "reference":
            stages_answer_as_one_process_does(tiny, backend, 3)
        stages_answer_as_one_process_does(tiny, "native", 3, kv_cache_dtype="int4")
        stages_answer_as_one_process_does(smollm2_path, "native", 2)
        a_stage_that_ends_is_told(tiny)
        a_stage_that_ends_as_it_loads_is_told(tiny)
        a_stage_that_is_frozen_is_told(tiny)
        stages_without_room_are_waited_for_so_long(tiny)
        what_stages_cannot_is_refused(tiny)


def stages_answer_as_one_process_does(path: Path, backend: str, stages: int, **more: str) -> None:
    arguments: dict[str, Any] = {"backend": backend, "kv_cache_memory_bytes": 64 << 20, "seed": 0}
    arguments |= more
    if backend == "native":
        arguments["threads"] = 1
    prompts = ["The sea is", "The sea is deep", "One two three"]
    drawn = SamplingParams(n=2, temperature=1, seed=3, max_tokens=12, ignore_eos=True, logprobs=2)
    with LLM(path, **arguments) as llm:
        expected = [output.outputs for output in llm.generate(prompts, drawn)]
        scores = llm.logits([1, 2, 3, 4, 5])
        vector = llm.embed("The sea")[0].embedding
    with PipelineLLM(path, stages=stages, cpus=0.5, **arguments) as llm:
        assert [output.outputs for output in llm.generate(prompts, drawn)] == expected
        # And once more, from the cache.
        assert [output.outputs for output in llm.generate(prompts, drawn)] == expected
        assert np.asarray(llm.logits([1, 2, 3, 4, 5])).tobytes() == np.asarray(scores).tobytes()
        assert llm.embed("The sea")[0].embedding == vector


def stages_there(count: int) -> list[int]:
    """Their processes, once those of others are gone."""
    until = time.monotonic() + PATIENCE_S
    while len(found := processes_named(STAGE)) != count:
        assert time.monotonic() < until, f"there are {len(found)}"
        time.sleep(0.05)
    return found


def a_stage_that_ends_is_told(path: Path) -> None:
    with PipelineLLM(path, stages=2, cpus=0.5, **ARGUMENTS) as llm:
        llm.generate("a", SamplingParams(max_tokens=2))
        stage = stages_there(2)[0]
        os.kill(stage, signal.SIGKILL)
        with pytest.raises(
            PellucidError, match=r"stage of the pipeline \(layers .* of 5\) has ended"
        ):
            llm.generate("a", SamplingParams(max_tokens=2))


def a_stage_that_ends_as_it_loads_is_told(path: Path) -> None:
    stages_there(0)

    def kill() -> None:
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            for pid in processes_named(STAGE):
                os.kill(pid, signal.SIGKILL)
                return

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(Unavailable, match="load the model again"):
        PipelineLLM(path, stages=2, cpus=0.5, **ARGUMENTS)
    killer.join()
    stages_there(0)


def a_stage_that_is_frozen_is_told(path: Path) -> None:
    with PipelineLLM(path, stages=2, cpus=0.5, silence_s=3, **ARGUMENTS) as llm:
        llm.generate("a", SamplingParams(max_tokens=2))
        signal_all({stages_there(2)[0]}, signal.SIGSTOP)
        with pytest.raises(Unavailable, match="no sign of life for 3 s"):
            llm.generate("a", SamplingParams(max_tokens=2))


def stages_without_room_are_waited_for_so_long(path: Path) -> None:
    with pytest.raises(Unavailable, match="started in 2 s: the cluster has no processors free"):
        PipelineLLM(path, stages=2, cpus=50, start_s=2, **ARGUMENTS)


def what_stages_cannot_is_refused(path: Path) -> None:
    for wrong in {"stages": 6}, {"stages": 0}, {"speculative": {"method": "ngram"}}:
        with pytest.raises(BadInput, match="stages"):
            PipelineLLM(path, **{**ARGUMENTS, **wrong})
    with pytest.raises(BadInput, match="no argument"):
        AsyncLLM(path, stages=2)
