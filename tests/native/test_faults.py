"""Forks, signals, company and want of memory: each ends cleanly, and the bits stay."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from pellucid.core.errors import PellucidError
from pellucid.models.registry import Model
from pellucid.ops.native import NativeOps
from pellucid.quant.types import TensorType
from tests.native.cases import Float32, same_bits
from tests.native.families import tiny_model
from tests.native.test_models import logits, tokens_of

TOKENS = tokens_of(60)
OTHER = 3  # what a child's exit code says beside 0 for "the same bits"
FORKED = "forked in the middle of a step"


def model() -> Model:
    return tiny_model("LlamaForCausalLM", NativeOps(threads=2), TensorType.Q8_0)


def in_child(run: Callable[[], int]) -> int:
    """The exit code of a forked child that runs `run`; it is killed if it hangs."""
    child = os.fork()
    if child == 0:
        signal.alarm(120)
        code = 1
        try:
            code = run()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def answers(running: Model, expected: Float32) -> int:
    try:
        return 0 if same_bits(logits(running, TOKENS), expected) else 1
    except RuntimeError as error:
        return OTHER if FORKED in str(error) else 1


def test_a_forked_child_goes_on() -> None:
    running = model()
    expected = logits(running, TOKENS)
    assert in_child(lambda: answers(running, expected)) == 0
    assert in_child(lambda: in_child(lambda: answers(running, expected))) == 0
    assert same_bits(logits(running, TOKENS), expected)


def test_a_child_forked_in_a_step_goes_on_or_says_so() -> None:
    running = model()
    expected = logits(running, TOKENS)
    done = threading.Event()

    def keep_stepping() -> None:
        while not done.is_set():
            logits(running, TOKENS)

    stepping = threading.Thread(target=keep_stepping)
    stepping.start()
    try:
        codes = [in_child(lambda: answers(running, expected)) for _ in range(8)]
    finally:
        done.set()
        stepping.join()
    assert set(codes) <= {0, OTHER}
    assert same_bits(logits(running, TOKENS), expected)


def test_an_interrupt_in_a_step_leaves_the_model_as_it_was() -> None:
    running = model()
    expected = logits(running, TOKENS)
    for _ in range(3):
        sender = threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            sender.start()
            while True:
                logits(running, TOKENS)
        sender.join()
        assert same_bits(logits(running, TOKENS), expected)


def test_two_models_at_once() -> None:
    models = [model(), tiny_model("Gemma2ForCausalLM", NativeOps(threads=2), TensorType.Q8_0)]
    expected = [logits(running, TOKENS) for running in models]
    wrong: list[int] = []

    def run(i: int) -> None:
        for _ in range(10):
            if not same_bits(logits(models[i], TOKENS), expected[i]):
                wrong.append(i)

    threads = [threading.Thread(target=run, args=(i,)) for i in (0, 1, 0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


_SHORT_OF_MEMORY = """
import resource
from tests.native.test_faults import short_of_memory
short_of_memory()
"""


def short_of_memory() -> None:
    """In a process of its own, whose address space ends soon."""
    running = model()
    expected = logits(running, TOKENS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), resource.RLIM_INFINITY))
    with pytest.raises(MemoryError):
        running.ops.new_cache(running.spec, 1 << 16, 128)
    with pytest.raises(PellucidError, match="gives no 1000 threads: ask for fewer"):
        NativeOps(threads=1000)
    assert same_bits(logits(running, TOKENS), expected)


@pytest.mark.skipif(sys.platform != "linux", reason="limits of the address space as Linux has them")
def test_what_is_left_works_when_memory_runs_out() -> None:
    command = [sys.executable, "-c", _SHORT_OF_MEMORY]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, capture_output=True, text=True, cwd=root)
    assert done.returncode == 0, done.stderr
