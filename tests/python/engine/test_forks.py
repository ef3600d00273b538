"""A forked child answers, whatever its parent's threads were at."""

from __future__ import annotations

import gc
import os
import signal
import threading
import weakref
from collections.abc import Callable

from pellucid import LLM, SamplingParams
from pellucid.engine.forks import after_fork
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


class Told:
    """What is told that it was forked."""

    def __init__(self) -> None:
        self.times = 0
        after_fork(self, Told.tell)

    def tell(self) -> None:
        self.times += 1


def test_what_lives_is_told_in_the_child_and_nothing_else() -> None:
    lives, dies = Told(), Told()
    times: list[int] = []
    weakref.finalize(dies, times.append, 1)
    del dies
    gc.collect()
    assert times == [1]  # being told of forks keeps nothing alive
    assert in_child(lambda: lives.times == 1)
    assert lives.times == 0


def text_of(llm: LLM) -> str:
    return llm.generate([PROMPT], WAY)[0].outputs[0].text


def test_an_engine_whose_operation_was_lost_answers_in_the_child(make_llm: MakeLLM) -> None:
    llm = make_llm()
    expected = text_of(llm)
    engine = llm.engine
    held, done = threading.Event(), threading.Event()

    def operate() -> None:
        with engine._operations.alone(), engine._operations.changing:
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


def test_a_fork_in_an_operation_of_its_own_thread_goes_on(make_llm: MakeLLM) -> None:
    llm = make_llm()
    expected = text_of(llm)
    with llm.engine._operations.alone():
        assert in_child(lambda: text_of(llm) == expected)
    assert text_of(llm) == expected
