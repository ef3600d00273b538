"""Where requests go: to the longest prefix, else to the least loaded, and never too many to one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.distributed.placement import Held, Placement, Policy, Route

PAGE = 4
NAMES = ["a", "b", "c"]


def placement(policy: Policy = "prefix", slack: int = 2, capacity: int = 64) -> Placement:
    return Placement(PAGE, capacity, slack, policy)


def go(place: Placement, tokens: list[int], salt: bytes = b"", answers: int = 1) -> Route:
    route = Route(place, tokens=tokens, salt=salt, answers=answers)
    assert route.rank(NAMES)[0] == route.replica
    return route


def prompt(first: int, pages: int) -> list[int]:
    return [first] * (PAGE * pages)


def test_a_prefix_is_followed_and_the_rest_is_spread() -> None:
    place = placement()
    first = go(place, prompt(1, 3))
    others = {go(place, prompt(number, 3)).replica for number in (2, 3)}
    assert {first.replica, *others} == set(NAMES)  # the least loaded, each in turn
    again = go(place, prompt(1, 3) + prompt(9, 2))
    assert (again.replica, again.why) == (first.replica, "prefix")


def test_the_longest_prefix_counts() -> None:
    place = placement(slack=99)
    short = go(place, prompt(1, 1) + prompt(2, 1))
    other = Route(place, tokens=prompt(1, 1) + prompt(3, 3), answers=1, avoid=[str(short.replica)])
    other.rank(NAMES)
    assert other.replica != short.replica
    assert go(place, prompt(1, 1) + prompt(3, 4)).replica == other.replica


def test_what_an_answer_adds_is_followed_too() -> None:
    place = placement()
    first = go(place, prompt(1, 1))
    said = prompt(1, 1) + prompt(7, 5)
    place.leave(first, said)
    for number in (2, 3, 4):
        go(place, prompt(number, 1))
    assert go(place, said + prompt(5, 1)).replica == first.replica


def test_tenants_do_not_meet() -> None:
    place = placement(slack=99)
    go(place, prompt(1, 3), b"one")
    assert go(place, prompt(1, 3), b"other").why == "least loaded"
    assert go(place, prompt(1, 3), b"one").why == "prefix"


def test_no_replica_drowns_in_a_prefix_that_all_share() -> None:
    place = placement(slack=2)
    routes = [go(place, prompt(1, 8)) for _ in range(30)]
    loads = [place.load(name) for name in NAMES]
    assert sum(loads) == 30
    assert max(loads) - min(loads) <= 3
    for route in routes:
        place.leave(route)
    assert all(place.load(name) == 0 for name in NAMES)


def test_who_ended_is_not_asked_again_and_holds_nothing() -> None:
    place = placement()
    first = go(place, prompt(1, 3))
    place.forget(str(first.replica))
    again = Route(place, tokens=prompt(1, 3), answers=1, avoid=[str(first.replica)])
    assert str(first.replica) not in again.rank(NAMES)
    assert again.why == "least loaded"
    assert Route(place, avoid=NAMES).rank(NAMES) == []


def test_a_request_may_name_its_replica() -> None:
    place = placement()
    assert Route(place, to="b").rank(NAMES) == ["b"]
    assert Route(place, to="gone").rank(NAMES) == []
    assert not place.chosen


def test_a_request_that_went_elsewhere_counts_there() -> None:
    place = placement()
    route = go(place, prompt(1, 3))
    other = next(name for name in NAMES if name != route.replica)
    route.routed(other)
    assert (route.replica, place.load(other), sum(place.chosen.values())) == (other, 1, 1)
    assert sum(place.load(name) for name in NAMES) == 1
    place.leave(route)
    assert place.load(other) == 0


def test_the_yardsticks_do_what_they_say() -> None:
    place = placement("round-robin")
    assert [go(place, prompt(1, 4)).replica for _ in range(6)] == NAMES * 2
    place = placement("least-loaded")
    assert {go(place, prompt(1, 4)).replica for _ in range(3)} == set(NAMES)


def test_a_route_is_nothing_elsewhere() -> None:
    made, arguments = Route(placement(), tokens=prompt(1, 2)).__reduce__()
    assert made(*arguments) is None


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(1, 3), st.booleans()),
        max_size=60,
    ),
    st.sampled_from(["prefix", "least-loaded", "round-robin"]),
)
def test_loads_add_up_and_stay_near_each_other(
    asked: list[tuple[int, int, int, bool]], policy: Policy
) -> None:
    place = placement(policy, slack=3, capacity=8)
    inside: list[Route] = []
    for first, pages, answers, ends in asked:
        inside.append(go(place, prompt(first, pages), answers=answers))
        if policy != "round-robin":
            chosen = inside[-1]
            before = place.load(str(chosen.replica)) - answers
            assert before <= min(place.load(n) for n in NAMES if n != chosen.replica) + 3
        if ends:
            place.leave(inside.pop(0))
        assert sum(place.load(name) for name in NAMES) == sum(r.answers for r in inside)


@pytest.mark.parametrize("capacity", [1, 3, 5])
def test_the_view_is_bounded_and_loses_ends_first(capacity: int) -> None:
    held = Held(capacity)
    chain = [bytes([i]) for i in range(5)]
    held.add(chain)
    assert len(held) == min(capacity, 5)
    assert held.match(chain) == min(capacity, 5)
    held.add([b"x"])
    assert len(held) == min(capacity, 6)
    assert held.match(chain) == min(capacity - 1, 5)
