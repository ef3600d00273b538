"""What the guide's figures see of a model's inside: the logit lens, and the attention of a layer.

It is `pellucid explain`'s own pass, on the reference's operations. It runs beside the engine and
takes from it while it does, so prompts are short, one runs at a time, the last few are kept, and
one that nobody waits for any more ends.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from math import log, prod
from pathlib import Path
from typing import Any, Final

import numpy as np

from pellucid.core.errors import BadInput, Overloaded, PellucidError
from pellucid.explain.inside import Inside, look_inside
from pellucid.explain.seen import attention, likeliest, probabilities
from pellucid.formats import open_checkpoint
from pellucid.text import Tokenizer

MOST_TOKENS: Final = 24
MOST_WEIGHTS: Final = 2_000_000_000  # some seconds on a small machine
_KEPT: Final = 4
MOST_WAITING: Final = 16
_AGAIN_S: Final = 2
_SHOWN: Final = 3
_FEATURES: Final = 32  # of a vector, as many as a page has room for


class Looks:
    """Looks that are asked for in one event loop: one after the other, in a thread of their own, as
    they take long and the loop's few threads tokenise everybody's texts."""

    def __init__(self, looker: Looker) -> None:
        self._looker = looker
        self._thread = ThreadPoolExecutor(1, "pellucid-look")
        self._n = 0

    async def look(self, prompt: str, layer: int | None) -> dict[str, Any]:
        """As `Looker.look`, after those before it; cancelled, it takes nothing any more. Raises
        `Overloaded` where many wait."""
        if self._n >= MOST_WAITING:
            raise Overloaded(f"{MOST_WAITING} others look inside: ask again in a moment", _AGAIN_S)
        left = threading.Event()
        self._n += 1
        try:
            looking = asyncio.get_running_loop().run_in_executor
            return await looking(self._thread, self._looker.look, prompt, layer, left)
        finally:
            self._n -= 1
            left.set()


class Looker:
    """Looks inside the model at `path`, used at `context` positions. For one thread."""

    def __init__(self, path: Path, tokenizer: Tokenizer, context: int) -> None:
        self._path, self._tokenizer, self._context = path, tokenizer, context
        self._kept: OrderedDict[tuple[int, ...], Inside] = OrderedDict()

    def look(self, prompt: str, layer: int | None, left: threading.Event) -> dict[str, Any]:
        """Tokens; the lens's likeliest tokens after each layer; the last token's row and what the
        layers made of it; every head's weights in `layer`, or in the layer of the most focused
        head, and that head's last row as logarithms. `left`: nobody waits for it any more.

        Raises `BadInput` for an empty prompt, a long one, a layer that is not there, and a model
        that is too large to be looked into beside its engine.
        """
        ids = tuple(self._tokenizer.encode(prompt))
        if not prompt or not ids:
            raise BadInput("the prompt is empty: give it at least one character")
        if len(ids) > MOST_TOKENS:
            raise BadInput(
                f"the prompt has {len(ids)} tokens and {MOST_TOKENS} are looked at: shorten it"
            )
        inside = self._inside(ids, left)
        chosen = attention(inside, layer, None)
        heads = inside.heads[chosen.layer]
        return {
            "tokens": [{"id": token, "text": self._text(token)} for token in ids],
            "lens": [
                [
                    {"text": one.text, "p": round(one.probability, 5)}
                    for one in likeliest(row, _SHOWN, self._text)
                ]
                for row in probabilities(inside.lens)
            ],
            **_stream(inside),
            "layer": chosen.layer,
            "head": chosen.head,
            "logs": [round(log(max(weight, 1e-30)), 4) for weight in chosen.weights],
            "layers": inside.spec.n_layers,
            "heads": [
                [[round(float(weight), 4) for weight in row] for row in heads.matrix(head)]
                for head in range(heads.layer.n_heads)
            ],
        }

    def _inside(self, ids: tuple[int, ...], left: threading.Event) -> Inside:
        def check() -> None:
            if left.is_set():
                raise PellucidError("whoever asked has left")

        if ids not in self._kept:
            with open_checkpoint(self._path) as checkpoint:
                weights = sum(prod(info.shape) for info in checkpoint.tensors.values())
                if weights > MOST_WEIGHTS:
                    raise BadInput(
                        f"this model has {weights / 1e9:.3g} billion weights, and is too large to "
                        "be looked into beside its engine: `pellucid explain` does it by itself"
                    )
                self._kept[ids] = look_inside(checkpoint, ids, self._context, check)
        self._kept.move_to_end(ids)
        while len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return self._kept[ids]

    def _text(self, token: int) -> str:
        known = token < self._tokenizer.vocab_size
        return self._tokenizer.token_text(token) if known else f"[row {token}]"


def _stream(inside: Inside) -> dict[str, Any]:
    """The residual stream of the last token.

    `row`: the first numbers of its embedding; `features`: which numbers are the largest after the
    last layer; `stream`: those, as the embedding left them and as each layer did; `sizes`: the root
    mean square of all; `added`: that of what each added.
    """
    every = inside.residuals
    largest = np.sort(np.argsort(-np.abs(every[-1]), kind="stable")[:_FEATURES])
    steps = np.diff(every, axis=0, prepend=0)
    return {
        "row": _rounded(every[0][:_FEATURES]),
        "features": largest.tolist(),
        "stream": [_rounded(row[largest]) for row in every],
        "sizes": _rounded(np.sqrt(np.mean(every**2, axis=1))),
        "added": _rounded(np.sqrt(np.mean(steps**2, axis=1))),
    }


def _rounded(values: Any) -> list[float]:
    return [float(f"{value:.4g}") for value in values]
