"""Every step leaves a record: its plan, times, cost, tokens and page changes."""

from __future__ import annotations

from pellucid import LLM, SamplingParams
from pellucid.core.record import StepRecord
from pellucid.engine.ledger import KEPT
from tests.python.engine.traffic import MakeLLM

PARAMS = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)


def subscribed(llm: LLM) -> list[StepRecord]:
    found: list[StepRecord] = []
    llm.engine.subscribe(found.append)
    return found


def test_records_add_up_to_what_was_done(make_llm: MakeLLM) -> None:
    llm = make_llm(max_num_batched_tokens=40)
    records = subscribed(llm)
    prompts = [[i + 1] * (30 + i) for i in range(5)]
    outputs = llm.generate(prompts, PARAMS)
    assert list(llm.engine.records) == records
    assert [record.number for record in records] == list(range(len(records)))
    positions = sum(span.n_tokens for record in records for span in record.spans)
    assert positions == sum(len(prompt) + 11 for prompt in prompts)
    chosen: dict[int, list[int]] = {}
    for record in records:
        assert all(seconds >= 0 for seconds in record.seconds)
        assert sum(span.n_logits for span in record.spans) == len(record.tokens)
        for sequence, tokens in record.tokens.items():
            chosen.setdefault(sequence, []).extend(tokens)
    assert list(chosen.values()) == [output.outputs[0].token_ids for output in outputs]
    starts = [record.start for record in records]
    assert starts == sorted(starts)
    assert records[-1].n_running == records[-1].n_waiting == 0
    stats = llm.engine.stats()
    assert (stats.steps, stats.positions_computed) == (len(records), positions)
    assert stats.tokens_generated == 60
    assert sum(stats.step_sizes) == len(records)
    assert stats.step_sizes[0] == sum(r.spans[0].n_tokens == 1 == len(r.spans) for r in records)


def test_a_cost_is_that_of_the_spans(make_llm: MakeLLM) -> None:
    llm = make_llm()
    records = subscribed(llm)
    llm.generate([[1, 2, 3]], PARAMS)
    first, second = records[0].cost, records[1].cost
    per_position = 2 * 2 * 2 * 8 * 4  # layers, key and value, kv heads, features, bytes
    assert first.kv_written == 3 * per_position
    assert second.kv_written == per_position
    assert second.kv_read == 4 * per_position
    assert first.weights_read >= second.weights_read > 0
    assert first.operations > second.operations


def test_what_pages_went_through_is_told(make_llm: MakeLLM) -> None:
    llm = make_llm()
    prompt = list(range(50))
    llm.generate([prompt], PARAMS)
    records = subscribed(llm)
    [output] = llm.generate([prompt], PARAMS)
    assert output.metrics is not None
    assert output.metrics.cached_tokens >= 48
    assert len(records[0].changes.shared) >= 3
    assert records[0].spans[0].start == output.metrics.cached_tokens


def test_the_ring_is_bounded_and_a_bad_subscriber_harms_nobody(make_llm: MakeLLM) -> None:
    llm = make_llm(max_model_len=96)
    calls = 0

    def bad(record: StepRecord) -> None:
        nonlocal calls
        calls += 1
        raise RuntimeError("mine")

    llm.engine.subscribe(bad)
    records = subscribed(llm)
    stop = llm.engine.subscribe(lambda record: stop() if record.number == 2 else None)
    params = SamplingParams(temperature=0, max_tokens=90, ignore_eos=True)
    while len(records) <= KEPT:
        llm.generate([[1]], params)
    assert calls == 1
    assert len(llm.engine.records) == KEPT
    assert list(llm.engine.records) == records[-KEPT:]
