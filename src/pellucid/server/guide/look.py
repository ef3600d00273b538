"""What the guide's figures see of a model's inside: the logit lens, and the attention of a layer.

It is `pellucid explain`'s own pass, on the reference's operations. It runs beside the engine and
takes from it while it does, so prompts are short, one runs at a time, and the last few are kept.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from math import prod
from pathlib import Path
from typing import Any, Final

from pellucid.core.errors import BadInput, Overloaded
from pellucid.explain.inside import Inside, look_inside
from pellucid.explain.seen import attention, likeliest, probabilities
from pellucid.formats import open_checkpoint
from pellucid.text import Tokenizer

MOST_TOKENS: Final = 24
MOST_WEIGHTS: Final = 2_000_000_000  # some seconds on a small machine
_KEPT: Final = 4
MOST_WAITING: Final = 4
_SHOWN: Final = 3


class Looker:
    """Looks inside the model at `path`, used at `context` positions."""

    def __init__(self, path: Path, tokenizer: Tokenizer, context: int) -> None:
        self._path, self._tokenizer, self._context = path, tokenizer, context
        self._kept: OrderedDict[tuple[int, ...], Inside] = OrderedDict()
        self._one = threading.Lock()
        self._room = threading.BoundedSemaphore(MOST_WAITING)

    def look(self, prompt: str, layer: int | None) -> dict[str, Any]:
        """Tokens; the lens's likeliest tokens after each layer; every head's weights in `layer`, or
        in the layer of the most focused head. Waits for a few others' looks.

        Raises `BadInput` for an empty prompt, a long one, a layer that is not there, and a model
        that is too large to be looked into beside its engine; `Overloaded` where many wait.
        """
        ids = tuple(self._tokenizer.encode(prompt))
        if not prompt or not ids:
            raise BadInput("the prompt is empty: give it at least one character")
        if len(ids) > MOST_TOKENS:
            raise BadInput(
                f"the prompt has {len(ids)} tokens and {MOST_TOKENS} are looked at: shorten it"
            )
        if not self._room.acquire(blocking=False):
            raise Overloaded(f"{MOST_WAITING} others look inside: ask again in a moment", 2)
        try:
            with self._one:
                inside = self._inside(ids)
        finally:
            self._room.release()
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
            "layer": chosen.layer,
            "head": chosen.head,
            "layers": inside.spec.n_layers,
            "heads": [
                [[round(float(weight), 4) for weight in row] for row in heads.matrix(head)]
                for head in range(heads.layer.n_heads)
            ],
        }

    def _inside(self, ids: tuple[int, ...]) -> Inside:
        if ids not in self._kept:
            with open_checkpoint(self._path) as checkpoint:
                weights = sum(prod(info.shape) for info in checkpoint.tensors.values())
                if weights > MOST_WEIGHTS:
                    raise BadInput(
                        f"this model has {weights / 1e9:.3g} billion weights, and is too large to "
                        "be looked into beside its engine: `pellucid explain` does it by itself"
                    )
                self._kept[ids] = look_inside(checkpoint, ids, self._context)
        self._kept.move_to_end(ids)
        while len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return self._kept[ids]

    def _text(self, token: int) -> str:
        known = token < self._tokenizer.vocab_size
        return self._tokenizer.token_text(token) if known else f"[row {token}]"
