"""Attacks through `pellucid run`: exit code 2, one line on standard error, nothing else.

All format attacks end in the same two error classes (test_attacks.py), so a sample goes the whole
way here: every malformed file that users of other engines reported, one of each other kind, and all
that only the tokenizer or the model can refuse.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from attacks.attack import Attack
from attacks.make import all_attacks

from pellucid.cli.main import main

REPORTED = """
gguf: dim-2^42+1, gguf: product-wraps, gguf: offset-1048576, gguf: offset-33, gguf: overlap,
gguf: string-2^30-array-2^40, gguf: alignment-1073741824, gguf: alignment-0, gguf: alignment-int32,
gguf: key-twice, gguf: tensor-twice, gguf: n_dims-9, gguf: scores-u8, gguf: token-<0x-1>,
gguf: type-999, gguf: key-bad-utf8, gguf: tensor-count-9223372036854775808,
safetensors: header-length-100000000, safetensors: ranges-overlap, safetensors: range-too-short,
safetensors: tensor-name-twice
"""
OTHERS = """
gguf: big-endian, gguf: split-cycle, gguf: token-bad-utf8, safetensors: header-lists-deep,
folder: index-parent, folder: index-itself, folder: link-out-shard, folder: link-loop-config.json,
folder: config-bad-utf8, folder: pickle-2.bin, folder: pickle-in-zip, folder: not-page.gguf,
folder: a-pipe, folder: a-device
"""
ATTACKS = {attack.name: attack for attack in all_attacks()}
LAST_BYTE = max(
    (name for name in ATTACKS if name.startswith("gguf: cut-at-")), key=lambda n: int(n[13:])
)
CHOSEN = [
    *(name.strip() for name in (REPORTED.strip() + "," + OTHERS.strip()).split(",")),
    LAST_BYTE,
    *(name for name, attack in ATTACKS.items() if attack.stage != "format"),
]


@pytest.mark.parametrize(
    "attack", [ATTACKS[n] for n in dict.fromkeys(CHOSEN)], ids=lambda a: a.name
)
def test_one_line_and_exit_code_2(
    attack: Attack,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = attack.write(tmp_path)
    monkeypatch.chdir(tmp_path)
    before = set(tmp_path.rglob("*"))
    with pytest.raises(SystemExit) as left:
        main(["run", str(path), "hello", "--backend", "reference", "--max-tokens", "1"])
    out, err = capsys.readouterr()
    assert left.value.code == 2, err
    assert out == ""
    assert re.fullmatch(r"error: [^\n]+\n", err), err
    assert re.search(attack.error, err), err
    assert set(tmp_path.rglob("*")) == before
