"""The page changes of steps, followed one after another, give the map of pages."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid import LLM, SamplingParams
from pellucid.core.record import PageChanges, StepRecord
from pellucid.costs import kv_bytes_per_token
from tests.python.engine.traffic import MakeLLM, Traffic, traffic

PAGE = 16


class Followed:
    """Who owns what, as a reader of the records makes it out."""

    def __init__(self) -> None:
        self.tables: dict[int, list[int]] = {}
        self.cached: set[int] = set()

    def copy(self) -> Followed:
        other = Followed()
        other.tables = {sequence: list(pages) for sequence, pages in self.tables.items()}
        other.cached = set(self.cached)
        return other

    def change(self, changes: PageChanges) -> None:
        for sequence in (*changes.ended, *changes.preempted):
            self.tables.pop(sequence, None)
        self.cached |= set(changes.cached)
        self.cached -= set(changes.evicted)

    def follow(self, record: StepRecord) -> None:
        self.change(record.changes)
        for sequence, first, pages in record.changes.owned:
            table = self.tables.setdefault(sequence, [])
            assert len(table) >= first
            table[first:] = pages


def follow(llm: LLM) -> list[StepRecord]:
    """Has every step compared with the map after it."""
    engine, followed = llm.engine, Followed()
    seen: list[StepRecord] = []

    def compare(record: StepRecord) -> None:
        seen.append(record)
        followed.follow(record)
        now = followed.copy()
        now.change(engine.scheduler._memory.changes)  # of its end: the next record will tell
        found = engine.scheduler.page_map(with_tokens=True)
        replaced = set(engine.scheduler._memory.changes.shared)
        for table in found.tables:
            told = now.tables[table.sequence]
            same = [a == b or b in replaced for a, b in zip(told, table.pages, strict=True)]
            assert all(same)
        assert now.tables.keys() == {table.sequence for table in found.tables}
        assert now.cached == {page.page for page in found.cached}
        counts = record.pages
        assert counts.free + counts.cached + counts.owned == engine.scheduler.limits.n_pages
        assert len(found.idle) == counts.cached

    engine.subscribe(compare)
    return seen


@settings(max_examples=25)
@given(traffic(), st.integers(0, 4))
def test_the_changes_of_steps_are_those_of_the_map(
    make_llm: MakeLLM, asked: Traffic, spare: int
) -> None:
    page_bytes = PAGE * kv_bytes_per_token(make_llm().spec, "f32")
    llm = make_llm(
        max_num_seqs=asked.max_num_seqs,
        max_num_batched_tokens=asked.max_num_seqs + asked.spare_tokens,
        kv_cache_memory_bytes=(6 + spare) * page_bytes,
    )
    seen = follow(llm)
    prompts = [prompt for prompt, _ in asked.requests]
    params = [params for _, params in asked.requests]
    llm.generate(prompts, params)
    llm.generate(prompts, params)  # what is cached is taken
    assert seen


def test_a_cached_page_knows_who_took_it_and_what_it_follows(make_llm: MakeLLM) -> None:
    llm = make_llm()
    prompt = list(range(1, 41))
    params = SamplingParams(temperature=0, max_tokens=2, ignore_eos=True)
    llm.generate([prompt], params)
    _, before = llm.engine.page_map(with_tokens=True)
    first, second = before.cached
    assert (first.parent, second.parent) == (None, first.page)
    assert first.tokens == tuple(prompt[:16])
    assert before.idle == (second.page, first.page)  # the end of a chain goes first
    llm.generate([prompt[:20]], params)
    _, after = llm.engine.page_map()
    assert [page.hits for page in after.cached] == [1, 0]
    assert after.cached[0].used > after.cached[1].used
    assert after.cached[0].tokens == ()
