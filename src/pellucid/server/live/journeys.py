"""Journeys: what the server saw of requests: when they came in, what was said, and when the last
byte left."""

from __future__ import annotations

import hashlib
import hmac
import time
from array import array
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from pellucid.core.errors import PellucidError
from pellucid.core.outputs import Increment
from pellucid.core.params import SamplingParams

if TYPE_CHECKING:
    from pellucid.server.guard import Watched

KEPT: Final = 1024
# Of all journeys together: prompts and answers.
_TOKENS_KEPT: Final = 1 << 20

VIEWER_HEADER: Final = "x-pellucid-viewer"


class Journey:
    """An HTTP request on its way. Times are seconds of `time.monotonic`; `sent` is None until the
    last byte of its response was handed to the system. `told_tokens` is how many tokens its
    response says that its answers have.

    `replicas`, where there are some: which one took each request of it, the last that did.

    `viewer` is a secret of whoever asked, if they gave one: with it they may read its texts."""

    __slots__ = ("_on_sent", "owner", "received", "replicas", "sent", "told_tokens")

    def __init__(self, viewer: str | None = None, received: float | None = None) -> None:
        self.owner = None if viewer is None else _digest(viewer)
        self.received = time.monotonic() if received is None else received
        self.sent: float | None = None
        self.told_tokens: int | None = None
        self.replicas: dict[str, str] = {}
        self._on_sent: list[Callable[[], None]] = []

    def is_of(self, viewer: str | None) -> bool:
        """Whether it was asked for with this secret."""
        if viewer is None or self.owner is None:
            return False
        return hmac.compare_digest(_digest(viewer), self.owner)

    @property
    def answered_by(self) -> str:
        """The names of its replicas, as a header says them; empty where there are none."""
        return ", ".join(dict.fromkeys(self.replicas.values()))

    def has_sent(self) -> None:
        """All of the response is out."""
        if self.sent is None:
            self.sent = time.monotonic()
            for told in self._on_sent:
                told()

    def when_sent(self, told: Callable[[], None]) -> None:
        """Have `told` called then."""
        self._on_sent.append(told)


class Said:
    """The tokens of a request: its prompt, and each answer with when its tokens came."""

    __slots__ = ("answers", "params", "prompt", "salt", "tenant", "times")

    def __init__(self, prompt: Sequence[int], params: SamplingParams, call: Asked) -> None:
        self.prompt = array("i", prompt)
        self.params = params
        self.salt = call.salt
        self.tenant = call.tenant
        self.answers = [array("i") for _ in range(params.n)]
        self.times = [array("d") for _ in range(params.n)]

    @property
    def n_tokens(self) -> int:
        return len(self.prompt) + sum(map(len, self.answers))


class Asked(NamedTuple):
    """Who asked for a request, and the salt of its cached prefixes."""

    journey: Journey
    salt: bytes
    tenant: bytes


class Journeys:
    """The last journeys, by the ids that the engine's requests have. In the event loop alone. A
    `Watcher` of the guard."""

    def __init__(self) -> None:
        self._asked: OrderedDict[str, Asked] = OrderedDict()
        self._said: OrderedDict[str, Said] = OrderedDict()
        self._n_tokens = 0
        self._sent: deque[str] = deque(maxlen=KEPT)
        self._n_sent = 0

    def begin(self, request_id: str, journey: Journey, salt: bytes, tenant: bytes) -> None:
        """The engine is asked for `request_id` on behalf of `journey`."""
        self._asked[request_id] = Asked(journey, salt, tenant)
        while len(self._asked) > KEPT:
            name, _ = self._asked.popitem(last=False)
            self._forget(name)
        journey.when_sent(lambda: self._ended(request_id))

    def of(self, request_id: str) -> Journey | None:
        """The journey of a request, if it came by HTTP and is remembered."""
        asked = self._asked.get(request_id)
        return None if asked is None else asked.journey

    def said(self, request_id: str) -> Said | None:
        """Its tokens, if they are remembered."""
        return self._said.get(request_id)

    def began(self, request: Watched) -> None:
        asked = self._asked.get(request.request_id)
        if asked is not None:
            said = Said(request.prompt_token_ids, request.params, asked)
            self._said[request.request_id] = said
            self._n_tokens += len(said.prompt)
            self._make_room()

    def grew(self, request: Watched, increment: Increment, now: float) -> None:
        said = self._said.get(request.request_id)
        if said is not None:
            tokens = increment.token_ids
            answer, times = said.answers[increment.index], said.times[increment.index]
            for token in tokens:  # one, nearly always
                answer.append(token)
                times.append(now)
            self._n_tokens += len(tokens)

    def ended(self, request: Watched, error: PellucidError | None) -> None:
        asked = self._asked.get(request.request_id)
        if asked is not None and request.metrics is not None:
            asked.journey.told_tokens = request.metrics.generation_tokens
        self.taken(request)
        self._make_room()

    def taken(self, request: Watched) -> None:
        """By a replica, where there are some."""
        asked = self._asked.get(request.request_id)
        if asked is not None and request.replica is not None:
            asked.journey.replicas[request.request_id] = request.replica

    def refused(self, reason: str) -> None:
        """It never was."""

    def sent_since(self, mark: int) -> tuple[list[str], int]:
        """The requests whose responses were sent since `mark` (0: the beginning), of the last ones;
        and the mark of now."""
        count = min(self._n_sent - mark, len(self._sent))
        return list(self._sent)[len(self._sent) - count :], self._n_sent

    def _ended(self, request_id: str) -> None:
        self._sent.append(request_id)
        self._n_sent += 1

    def _make_room(self) -> None:
        """Forget the oldest texts where there are too many."""
        while self._n_tokens > _TOKENS_KEPT and len(self._said) > 1:
            self._forget(next(iter(self._said)))

    def _forget(self, name: str) -> None:
        said = self._said.pop(name, None)
        if said is not None:
            self._n_tokens -= said.n_tokens


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "replace")).digest()
