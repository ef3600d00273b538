"""A batch in shards and a model in stages, on a cluster of two nodes."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from batch_kill import comparable, requests
from click.testing import CliRunner

from pellucid import LLM, AsyncLLM, BadInput, PellucidError, SamplingParams
from pellucid.cli.main import app
from pellucid.distributed.pipeline.llm import PipelineLLM
from tests.cluster.nodes import cluster_of
from tests.python.engine.tiny import write_model

ARGUMENTS = {"kv_cache_memory_bytes": 1 << 20, "seed": 0, "threads": 1}
LINES = 200


def test_work(tmp_path: Path, smollm2_path: Path) -> None:
    """In one cluster, which takes longer to start than most of this does."""
    tiny = write_model(tmp_path / "tiny.gguf", layers=5)
    with cluster_of(2, 2) as cluster:
        a_batch_is_what_it_is_without_a_cluster(tmp_path, tiny)
        an_engine_that_ends_loses_no_line(tmp_path, tiny)
        for backend in "native", "reference":
            stages_answer_as_one_process_does(tiny, backend, 3)
        stages_answer_as_one_process_does(tiny, "native", 3, kv_cache_dtype="int4")
        stages_answer_as_one_process_does(smollm2_path, "native", 2)
        a_stage_that_ends_is_told(tiny)
        what_stages_cannot_is_refused(tiny)
        assert len(cluster.others) == 1


def command(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["batch", *arguments])


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def by_id(path: Path) -> dict[str, Any]:
    found = read(path)
    by = {line["custom_id"]: comparable(line) for line in found}
    assert len(by) == len(found), "a line is there twice"
    return by


def write_requests(path: Path) -> None:
    lines = requests(LINES)
    for line in lines:  # what fits the tiny model's context
        if "messages" in line["body"]:
            line["body"]["messages"] = [{"role": "user", "content": line["custom_id"]}]
        if "max_tokens" in line["body"]:
            line["body"]["max_tokens"] = min(16, line["body"]["max_tokens"])
    text = "".join(json.dumps(line) + "\n" for line in lines)
    path.write_text(text + "nope\n")


def a_batch_is_what_it_is_without_a_cluster(folder: Path, model: Path) -> None:
    source, alone, sharded = (folder / name for name in ("in", "alone", "sharded"))
    write_requests(source)
    flags = ("--model", str(model), "--threads", "1")
    assert command(str(source), str(alone), *flags).exit_code == 0
    ray = (*flags, "--ray", "--replicas", "2")
    ended = command(str(source), str(sharded), *ray)
    assert ended.exit_code == 0, ended.output
    assert by_id(sharded) == by_id(alone)
    whole = sharded.read_bytes().splitlines(keepends=True)
    # As a kill leaves it: some lines, and the beginning of another.
    sharded.write_bytes(b"".join(whole[:70]) + whole[70][:40])
    assert command(str(source), str(sharded), *ray).exit_code == 0
    assert by_id(sharded) == by_id(alone)
    assert sharded.read_bytes().startswith(b"".join(whole[:70]))
    assert (
        command(str(source), str(alone), *ray).exit_code == 0
    )  # either way goes on from the other


def an_engine_that_ends_loses_no_line(folder: Path, model: Path) -> None:
    source, alone, killed = (folder / name for name in ("in", "alone", "killed"))
    met = threading.Event()
    done = threading.Event()

    def kill() -> None:
        """One of the engines, as soon as lines are there."""
        while not done.is_set():
            if killed.exists() and killed.stat().st_size:
                workers = [pid for pid, name in processes() if "Answerer" in name]
                if workers:
                    os.kill(workers[0], signal.SIGKILL)
                    met.set()
                    return

    killer = threading.Thread(target=kill)
    killer.start()
    flags = ("--model", str(model), "--max-num-seqs", "4", "--threads", "1")
    ended = command(str(source), str(killed), *flags, "--ray", "--replicas", "2")
    done.set()
    killer.join()
    assert ended.exit_code == 0, ended.output
    assert met.is_set(), "no engine was met"
    assert by_id(killed) == by_id(alone)


def processes() -> list[tuple[int, str]]:
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                name = (folder / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            found.append((int(folder.name), name))
    return found


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


def a_stage_that_ends_is_told(path: Path) -> None:
    with PipelineLLM(path, stages=2, cpus=0.5, **ARGUMENTS) as llm:
        llm.generate("a", SamplingParams(max_tokens=2))
        stage = next(pid for pid, name in processes() if "ray::StageActor" in name)
        os.kill(stage, signal.SIGKILL)
        with pytest.raises(PellucidError, match="stage of the pipeline has ended"):
            llm.generate("a", SamplingParams(max_tokens=2))


def what_stages_cannot_is_refused(path: Path) -> None:
    for wrong in {"stages": 6}, {"stages": 0}, {"speculative": {"method": "ngram"}}:
        with pytest.raises(BadInput, match="stages"):
            PipelineLLM(path, **{**ARGUMENTS, **wrong})
    with pytest.raises(BadInput, match="no argument"):
        AsyncLLM(path, stages=2)
