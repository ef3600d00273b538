"""The thread pool: every chunk once, whatever the threads, the callers and the forks."""

from __future__ import annotations

import os
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid._native import program


def total(chunks: int, phases: int) -> int:
    return phases * chunks * (chunks - 1) // 2 + chunks * phases * (phases - 1) // 2


@given(st.integers(1, 5), st.integers(0, 200), st.integers(1, 20))
@settings(max_examples=40)
def test_every_chunk_of_every_phase_once(threads: int, chunks: int, phases: int) -> None:
    pool = program.Pool(threads)
    assert pool.threads == threads
    for _ in range(3):
        assert pool.sum_of_chunks(chunks, phases) == total(chunks, phases)


def test_wakes_after_it_slept() -> None:
    pool = program.Pool(2)
    for pause in (0.0, 0.001, 0.02):
        time.sleep(pause)
        assert pool.sum_of_chunks(50, 5) == total(50, 5)


def test_threads_that_come_late_find_what_is_over_done() -> None:
    pool = program.Pool(4 * (os.cpu_count() or 1))  # most have no processor when a step begins
    for phases in (1, 7, 300):
        for chunks in (1, 2, 9):
            assert pool.sum_of_chunks(chunks, phases) == total(chunks, phases)


def test_two_pools_at_once_and_two_callers_of_one() -> None:
    pools = [program.Pool(2), program.Pool(3)]
    wrong = []

    def call(pool: object) -> None:
        for _ in range(30):
            if pool.sum_of_chunks(40, 4) != total(40, 4):  # type: ignore[attr-defined]
                wrong.append(pool)

    callers = [threading.Thread(target=call, args=(pool,)) for pool in pools * 2]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong


def test_a_forked_child_makes_its_own_threads() -> None:
    pool = program.Pool(2)
    assert pool.sum_of_chunks(10) == 45
    child = os.fork()
    if child == 0:
        ok = pool.sum_of_chunks(10) == 45 and pool.sum_of_chunks(100, 3) == total(100, 3)
        os._exit(0 if ok else 1)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            assert os.waitstatus_to_exitcode(status) == 0
            break
        time.sleep(0.01)
    else:
        os.kill(child, 9)
        os.waitpid(child, 0)
        pytest.fail("the child hangs")
    assert pool.sum_of_chunks(10) == 45


@pytest.mark.parametrize("threads", [0, -1, 5000])
def test_senseless_numbers_of_threads_are_refused(threads: int) -> None:
    with pytest.raises(ValueError, match=f"threads must be 1 to 1024, not {threads}"):
        program.Pool(threads)
