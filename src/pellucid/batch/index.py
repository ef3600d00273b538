"""Index: the lines of IN, and which of them are done. About 160 bytes for each."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from pathlib import Path

from pellucid.batch.identity import LineId, key_of
from pellucid.batch.output import Output, Written
from pellucid.batch.source import Asked, requests
from pellucid.core.errors import BadInput


class Index:
    """Lines by their keys. `n_done` of them are in OUT, of which `n_failed` are no answers.

    Raises `BadInput` for a custom_id that two lines have, and for a file without lines.
    """

    def __init__(self, path: Path, limit: int) -> None:
        self.path = path
        self.n_done = 0
        self.n_failed = 0
        self._limit = limit
        self._places: dict[bytes, int] = {}
        self._numbers = array("Q")
        self._contents = array("L")
        self._done = array("Q")  # the line of OUT, 0 where there is none
        for asked in requests(path, limit):
            self._add(asked)
        if not self._numbers:
            raise BadInput(f"{path}: there is no request in it: write one on each line")

    def __len__(self) -> int:
        return len(self._numbers)

    def strike_off(self, output: Output, model: bytes, settings: bytes) -> None:
        """Note what is done. Raises `BadInput` for an OUT that belongs to something else."""
        for written in output.written():
            place = self._place_in(output.path, written, model, settings)
            self._done[place] = written.number
            self.n_done += 1
            self.n_failed += not written.answered

    def undone(self) -> Iterator[Asked]:
        """The lines that are not in OUT, read again. Raises `BadInput` if IN is another by now."""
        place = -1
        for place, asked in enumerate(requests(self.path, self._limit)):
            if place >= len(self) or self._contents[place] != _number(asked.content):
                raise BadInput(
                    f"{self.path}: line {asked.number} was changed while the batch ran: give the "
                    "same command again once the file stays as it is"
                )
            if not self._done[place]:
                yield asked
        if place + 1 < len(self):
            raise BadInput(
                f"{self.path}: lines were taken away while the batch ran: give the same command "
                "again once the file stays as it is"
            )

    def _add(self, asked: Asked) -> None:
        key = key_of(asked.custom_id, asked.number)
        place = self._places.setdefault(key, len(self))
        if place != len(self):
            self._refuse_twice(self._numbers[place], asked)
        self._numbers.append(asked.number)
        self._contents.append(_number(asked.content))
        self._done.append(0)

    def _refuse_twice(self, first: int, asked: Asked) -> None:
        raise BadInput(
            f"{self.path}: lines {first} and {asked.number} have the same custom_id "
            f"{asked.custom_id!r}: give each line its own"
        )

    def _place_in(self, out: Path, written: Written, model: bytes, settings: bytes) -> int:
        """The place of the line that is answered. Raises `BadInput` if it is none of this IN."""
        problem = None
        place = self._places.get(written.id.key)
        if place is None:
            problem = f"answers custom_id {written.custom_id!r}, which {self.path} does not have"
        elif self._contents[place] != _number(written.id.content):
            problem = f"answers another request than line {self._numbers[place]} of {self.path}"
        elif written.id.model != model:
            problem = "is the answer of another model"
        elif written.id.settings != settings:
            problem = (
                "was written under other settings (--backend, --kv-cache-dtype, --seed, --lenient "
                "and others that decide answers, or another version of Pellucid)"
            )
        elif self._done[place]:
            problem = f"answers the same request as its line {self._done[place]}"
        if problem is not None or place is None:
            raise BadInput(
                f"{out}: line {written.number} {problem}: give the same command as before to go "
                "on, or another name for OUT to begin anew"
            )
        return place


def id_of(asked: Asked, model: bytes, settings: bytes) -> LineId:
    """The id of the line that answers `asked`."""
    return LineId(model, settings, key_of(asked.custom_id, asked.number), asked.content)


def _number(content: bytes) -> int:
    return int.from_bytes(content, "little")
