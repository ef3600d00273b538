"""The Arm kernels under an emulator, built with a cross compiler, against the generic twin.

Needs `aarch64-linux-gnu-g++` and `qemu-aarch64` (Debian: g++-aarch64-linux-gnu, qemu-user).
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NATIVE = ROOT / "native"
COMPILER, EMULATOR, SYMBOLS = (
    shutil.which(name) for name in ("aarch64-linux-gnu-g++", "qemu-aarch64", "aarch64-linux-gnu-nm")
)
SOURCES = [
    ROOT / "tests/native/matmul_check.cpp",
    NATIVE / "machine.cpp",
    NATIVE / "core/pool.cpp",
    NATIVE / "kernels/dispatch.cpp",
    *(NATIVE / "kernels/matmul" / f"{name}.cpp" for name in ("arena", "weight", "pack", "layout")),
    *(NATIVE / "kernels/matmul" / f"{name}.cpp" for name in ("bf16_weight", "bf16_generic")),
    NATIVE / "kernels/matmul/matmul_generic.cpp",
]
NEON = NATIVE / "kernels/matmul/matmul_neondot.cpp"
# As the build has them, with less time for optimisation.
FLAGS = ["-std=c++20", "-O1", "-ffp-contract=off", "-fno-math-errno", f"-I{NATIVE}"]

pytestmark = pytest.mark.skipif(
    not (COMPILER and EMULATOR), reason="needs a cross compiler for Arm and qemu-user"
)


def run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def neon(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("arm") / "neon.o"
    run(COMPILER, *FLAGS, "-march=armv8.2-a+dotprod", "-c", NEON, "-o", out)
    return out


def test_same_bits_as_generic(neon: Path) -> None:
    program = neon.with_name("check")
    run(COMPILER, *FLAGS, "-static", *SOURCES, neon, "-o", program)
    lines = run(EMULATOR, program, "neon").splitlines()
    assert sum(line.startswith("neon ") and line.endswith(" 0 wrong") for line in lines) == 11


def test_leaves_no_shared_function_compiled_for_one_processor(neon: Path) -> None:
    """A weak symbol might replace the same one of a source meant for any processor."""
    assert not [line for line in run(SYMBOLS, neon).splitlines() if " W " in line or " V " in line]
