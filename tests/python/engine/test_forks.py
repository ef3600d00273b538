"""A forked child answers, whatever its parent's threads were at."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

from pellucid import LLM, SamplingParams
from pellucid.engine.fork_lock import ForkLock
from tests.python.engine.traffic import MakeLLM

PROMPT = {"prompt_token_ids": [3, 10, 17, 24]}
WAY = SamplingParams(max_tokens=4, temperature=0, ignore_eos=True)


def in_child(run: Callable[[], bool]) -> bool:
    """What `run` gives in a forked child, which is killed if it hangs."""
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        code = 1
        try:
            code = 0 if run() else 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def beside_a_holder(lock: ForkLock, run: Callable[[], bool]) -> bool:
    """`run` in a child forked while another thread holds the lock."""
    holds, done = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            holds.set()
            done.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    holds.wait()
    try:
        return in_child(run)
    finally:
        done.set()
        holder.join()


def test_a_lock_that_nobody_held_is_the_child_s() -> None:
    lost: list[bool] = []
    lock = ForkLock(lambda: lost.append(True))

    def enters() -> bool:
        with lock, lock:
            return not lost

    assert in_child(enters)
    with lock:  # by the thread that forks, which goes on in the child
        assert in_child(enters)
    assert enters()


def test_a_lock_that_a_lost_thread_held_is_made_anew_once() -> None:
    lost: list[bool] = []
    lock = ForkLock(lambda: lost.append(True))

    def enters() -> bool:
        with lock, lock:
            pass
        with lock:
            return lost == [True]

    assert beside_a_holder(lock, enters)
    assert not lost


def text_of(llm: LLM) -> str:
    return llm.generate([PROMPT], WAY)[0].outputs[0].text


def test_an_engine_whose_operation_was_lost_answers_in_the_child(make_llm: MakeLLM) -> None:
    llm = make_llm()
    expected = text_of(llm)
    engine = llm.engine
    held, done = threading.Event(), threading.Event()

    def operate() -> None:
        with engine._alone(), engine._changing():
            held.set()
            done.wait()

    operating = threading.Thread(target=operate)
    operating.start()
    held.wait()
    try:
        assert in_child(lambda: text_of(llm) == expected)
    finally:
        done.set()
        operating.join()
    assert text_of(llm) == expected
