"""The simulated router chooses as the real one does."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.distributed.placement import Placement, Route
from pellucid.scheduling import Sequence
from pellucid.simulate.routing import Router
from pellucid.simulate.setup import ROUTINGS, Routing

PAGE = 4


class Seen:
    """A replica as the placement sees it."""

    def __init__(self, placement: Placement, name: str) -> None:
        self._placement = placement
        self._name = name

    @property
    def load(self) -> int:
        return self._placement.load(self._name)

    def cached(self, asked: Sequence) -> int:
        held = self._placement._held.get(self._name)
        pages = self._placement.pages_of(b"", asked.tokens)
        return 0 if held is None else PAGE * held.match(pages)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(ROUTINGS),
    st.integers(2, 4),
    st.integers(0, 3),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.booleans()), max_size=30),
)
def test_each_request_goes_where_the_real_router_sends_it(
    routing: Routing, count: int, slack: int, history: list[tuple[int, int, bool]]
) -> None:
    placement = Placement(PAGE, 6, slack, routing)
    names = [f"replica {i}" for i in range(count)]
    router = Router(routing, slack)
    seen = [Seen(placement, name) for name in names]
    under_way: list[Route] = []
    for text, n_pages, leaves in history:
        if leaves and under_way:
            placement.leave(under_way.pop(0))
        tokens = [text] * (PAGE * n_pages) + [9]
        most = PAGE * n_pages if leaves else None  # known, or not
        chosen = router.choose(seen, Sequence(0, tokens, 1), most=most)
        route = Route(placement, tokens=tokens, answers=1)
        assert placement.rank(route, names)[0] == names[chosen]
        under_way.append(route)
