"""Row and attention kernels on Arm under an emulator, against the generic twin."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.native.test_arm import COMPILER, EMULATOR, FLAGS, NATIVE, ROOT, SYMBOLS, run

pytestmark = pytest.mark.skipif(
    not (COMPILER and EMULATOR), reason="needs a cross compiler for Arm and qemu-user"
)

PLAIN = [
    ROOT / "tests/native/kernels_check.cpp",
    NATIVE / "cache/kv_cache.cpp",
    NATIVE / "kernels/rows/rows_generic.cpp",
    NATIVE / "kernels/attention/attention_generic.cpp",
]
NEON = ["rows", "attention"]


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("arm")
    made = []
    for name in NEON:
        made.append(folder / f"{name}.o")
        source = NATIVE / f"kernels/{name}/{name}_neon.cpp"
        run(COMPILER, *FLAGS, "-O2", "-c", source, "-o", made[-1])
    return made


def test_same_bits_as_generic(objects: list[Path]) -> None:
    program = objects[0].with_name("check")
    run(COMPILER, *FLAGS, "-static", *PLAIN, *objects, "-o", program)
    lines = run(EMULATOR, program).splitlines()
    assert len(lines) == 20
    assert not [line for line in lines if not line.endswith(" 0 wrong")]


def test_leaves_no_shared_function_compiled_for_one_processor(objects: list[Path]) -> None:
    """A weak symbol outside its instruction set's namespace might replace one meant for any."""
    for path in objects:
        weak = [line for line in run(SYMBOLS, "-C", path).splitlines() if " W " in line]
        assert not [line for line in weak if "pellucid::neon" not in line]
