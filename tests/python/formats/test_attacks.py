"""Every attack ends in one line that names file, field and mend, quickly, in little memory."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from attacks.attack import Attack
from attacks.folder_attacks import MARK
from attacks.make import all_attacks, write

from pellucid.core.errors import BadInput, FormatError, UnsupportedError
from pellucid.formats import open_checkpoint

ROOT = Path(__file__).parents[3]
FORMAT = [attack for attack in all_attacks() if attack.stage == "format"]
LATER = [attack for attack in all_attacks() if attack.stage != "format"]
MAX_EXTRA_BYTES = 50_000_000
MAX_SECONDS = 1.0


@pytest.mark.parametrize("attack", FORMAT, ids=lambda a: a.name)
def test_refused_in_one_line(
    attack: Attack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = attack.write(tmp_path)
    monkeypatch.chdir(tmp_path)
    before = set(tmp_path.rglob("*"))
    with pytest.raises(BadInput) as caught:
        open_checkpoint(path)
    message = str(caught.value)
    assert re.search(attack.error, message), message
    assert "\n" not in message and len(message) < 12_000
    assert message.isprintable() or "\0" in str(path)
    assert str(tmp_path) in message or str(path) in message
    assert caught.value.exit_code == 2
    assert set(tmp_path.rglob("*")) == before
    assert not (tmp_path / MARK).exists()


@pytest.mark.parametrize("attack", LATER, ids=lambda a: a.name)
def test_sound_containers_open(attack: Attack, tmp_path: Path) -> None:
    """What only the tokenizer or the model can refuse opens, so that they get to see it."""
    with open_checkpoint(attack.write(tmp_path)) as checkpoint:
        assert checkpoint.metadata["general.architecture"] == "llama"


def test_the_good_files_open(tmp_path: Path) -> None:
    """The attacks are refused for what was broken in them, not for what they were made from."""
    from attacks.folder_attacks import good_sharded
    from attacks.gguf_file import good_file
    from attacks.safetensors_file import GOOD_DATA, good_header, safetensors_file

    (tmp_path / "good.gguf").write_bytes(good_file().write())
    (tmp_path / "good.safetensors").write_bytes(safetensors_file(good_header(), GOOD_DATA))
    paths = [tmp_path / "good.gguf", tmp_path / "good.safetensors", good_sharded(tmp_path)]
    for path, n_tensors in zip(paths, (11, 3, 2), strict=True):
        with open_checkpoint(path) as checkpoint:
            assert len(checkpoint.tensors) == n_tensors
            for name, tensor in checkpoint.tensors.items():
                assert checkpoint.read(name).shape == tensor.shape


_CHILD = """
import json, resource, sys, time
from pellucid.core.errors import BadInput
from pellucid.formats import open_checkpoint

limit = {extra}
data = next(int(l.split()[1]) for l in open("/proc/self/status") if l.startswith("VmData")) * 1024
resource.setrlimit(resource.RLIMIT_DATA, (data + limit, data + limit))
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
base = peak()
results = []
for path in json.loads(sys.stdin.read()):
    start = time.process_time()
    try:
        open_checkpoint(path)
        error = "opened"
    except BadInput as bad:
        error = type(bad).__name__
    results.append((path, error, time.process_time() - start, peak() - base))
print(json.dumps(results))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and limits memory as Linux does")
def test_no_attack_takes_memory_or_time(tmp_path: Path) -> None:
    """In a process that could not allocate more than the limit, one after another."""
    paths = [str(write(attack, tmp_path, number)) for number, attack in enumerate(FORMAT)]
    child = subprocess.run(
        [sys.executable, "-c", _CHILD.format(extra=MAX_EXTRA_BYTES)],
        input=json.dumps(paths),
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
        check=False,
    )
    assert child.returncode == 0, child.stderr[-2000:]
    kinds = {kind.__name__ for kind in (BadInput, FormatError, UnsupportedError)}
    results = json.loads(child.stdout)
    assert len(results) == len(FORMAT)
    for path, error, seconds, extra in results:
        assert error in kinds, path
        assert seconds < MAX_SECONDS, path
        assert extra < MAX_EXTRA_BYTES, path


def test_the_command_writes_the_same_files_each_time(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        for number, attack in enumerate(all_attacks()[:40]):
            write(attack, tmp_path / folder, number)
    one = {p.relative_to(tmp_path / "one"): p.read_bytes() for p in (tmp_path / "one").glob("*/*")}
    two = {p.relative_to(tmp_path / "two"): p.read_bytes() for p in (tmp_path / "two").glob("*/*")}
    assert one and one == two
