"""Every attack, and the command that writes them: `python -m attacks.make FOLDER`."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from attacks.attack import Attack
from attacks.folder_attacks import folder_attacks
from attacks.gguf_attacks import gguf_attacks
from attacks.safetensors_attacks import safetensors_attacks


def all_attacks() -> list[Attack]:
    """All attacks, in a fixed order and with unique names."""
    groups = {
        "gguf": gguf_attacks(),
        "safetensors": safetensors_attacks(),
        "folder": folder_attacks(),
    }
    attacks = [
        replace(attack, name=f"{group}: {attack.name}")
        for group, members in groups.items()
        for attack in members
    ]
    names = {attack.name for attack in attacks}
    if len(names) != len(attacks):
        raise AssertionError("two attacks share a name")
    return attacks


def write(attack: Attack, folder: Path, number: int) -> Path:
    """Write one attack into a new folder of its own; returns the path to open."""
    place = folder / f"{number:03}"
    place.mkdir()
    return attack.write(place)


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True)
    for number, attack in enumerate(all_attacks()):
        path = write(attack, folder, number)
        print(f"{attack.name}\t{attack.stage}\t{str(path)!r}\t{attack.error}")


if __name__ == "__main__":
    main()
