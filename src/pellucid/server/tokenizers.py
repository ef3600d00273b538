"""Tokenizers of the models that are here, beside the served one: to see what another makes of a
text."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from pellucid.engine.tokenizer_file import open_tokenizer
from pellucid.server.errors import ApiError
from pellucid.text import Tokenizer


class Tokenizers:
    """Opens them by name, one at a time, and keeps the last: a vocabulary is tens of megabytes."""

    def __init__(self, served: str, own: Tokenizer) -> None:
        self._served = served
        self._own = own
        self._kept: tuple[Path, Tokenizer] | None = None
        self._opening = asyncio.Lock()

    async def names(self) -> list[str]:
        """The served model's name, then those of other models on this machine."""
        return [self._served, *(name for name in await _here() if name != self._served)]

    async def named(self, name: str | None) -> Tokenizer:
        """Raises `ApiError` 404 for a name that is not in `names`."""
        if name is None or name == self._served:
            return self._own
        path = (await _here()).get(name)
        if path is None:
            raise ApiError(
                404,
                f"tokenizer {name[:200]!r} is not here: this machine has "
                f"{', '.join(await self.names())}",
                param="tokenizer",
            )
        async with self._opening:
            if self._kept is None or self._kept[0] != path:
                self._kept = None
                self._kept = (path, await asyncio.to_thread(open_tokenizer, path))
            return self._kept[1]


async def _here() -> Mapping[str, Path]:
    return await asyncio.to_thread(_found)


def _found() -> dict[str, Path]:
    from pellucid.hub import list_models

    return {row.name: row.path for row in list_models() if row.path is not None and not row.damaged}
