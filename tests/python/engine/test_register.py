"""Which requests changed since a reader looked, and what it missed."""

from __future__ import annotations

from pellucid.core.record import RequestRecord
from pellucid.engine.register import KEPT, Marks, Register


class Known:
    def __init__(self, name: str) -> None:
        self.name = name

    def record(self) -> RequestRecord:
        return RequestRecord(
            self.name, (), "queued", 0.0, None, None, None, None, 1, 0, 0, 0, None, None
        )


def names(records: list[RequestRecord]) -> list[str]:
    return [record.id for record in records]


def test_changes_are_told_once_and_what_runs_four_times_a_second() -> None:
    register = Register()
    a, b, c = map(Known, "abc")
    for known in a, b, c:
        register.changed(known)
    told = register.read(Marks(), 0.0)
    assert names(told.records) == ["a", "b", "c"]
    assert names(register.read(told.next, 0.1).records) == []
    register.changed(a)  # it began
    told = register.read(told.next, 0.125)
    assert names(told.records) == ["a"]
    told = register.read(told.next, 0.1875)
    assert names(told.records) == []
    told = register.read(told.next, 0.25)
    assert names(told.records) == ["a"]
    assert names(register.read(told.next, 0.375).records) == []
    assert names(register.read(told.next, 0.5).records) == ["a"]
    register.ended(a)
    told = register.read(told.next, 0.5)
    assert names(told.records) == ["a"]
    assert names(register.read(told.next, 1.0).records) == []


def test_what_was_too_much_is_counted() -> None:
    register = Register()
    marks = register.read(Marks()).next
    for i in range(KEPT + 7):
        known = Known(f"{i}")
        register.changed(known)
        register.ended(known)
    told = register.read(marks)
    assert (len(told.records), told.left_out) == (KEPT, 7)
    for i in range(3000):
        register.changed(Known(f"{i}"))
    told = register.read(told.next)
    assert len(told.records) + told.left_out == 3000
    assert told.records[-1].id == "2999"
    assert told.left_out > 0
