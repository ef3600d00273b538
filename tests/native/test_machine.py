"""What the native code says of the processor, against what the operating system says."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from pellucid import _native

CPUINFO = Path("/proc/cpuinfo")
# Our name -> the kernel's name, where they differ.
KERNEL_NAMES = {
    "avx512vnni": "avx512_vnni",
    "avx512bf16": "avx512_bf16",
    "avx512fp16": "avx512_fp16",
    "neon": "asimd",
    "dotprod": "asimddp",
}


def kernel_flags() -> set[str]:
    for line in CPUINFO.read_text().splitlines():
        if line.startswith(("flags", "Features")):
            return set(line.partition(":")[2].split())
    return set()


def test_names_features_and_their_presence() -> None:
    features = _native.cpu_features()
    assert features
    assert all(isinstance(name, str) and isinstance(on, bool) for name, on in features.items())


def test_is_the_same_each_time() -> None:
    assert _native.cpu_features() == _native.cpu_features()


@pytest.mark.skipif(not CPUINFO.exists(), reason="only Linux lists the processor's flags here")
def test_agrees_with_the_kernel() -> None:
    flags = kernel_flags()
    if not flags:
        pytest.skip(f"this kernel lists no flags for {platform.machine()}")
    for name, present in _native.cpu_features().items():
        assert present == (KERNEL_NAMES.get(name, name) in flags), name


def test_every_kernel_set_is_considered_and_the_best_usable_is_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PELLUCID_SIMD", raising=False)
    facts = json.loads(inspect_machine().stdout)
    usable = [kernels["name"] for kernels in facts["kernels"] if kernels["usable"]]
    assert usable[0] == "generic"
    assert facts["kernels_chosen"] == usable[-1]
    for kernels in facts["kernels"]:
        if not kernels["usable"]:
            assert "lacks" in kernels["why"]
            monkeypatch.setenv("PELLUCID_SIMD", kernels["name"])
            refused = inspect_machine()
            assert refused.returncode == 2
            assert kernels["why"] in refused.stderr
    monkeypatch.setenv("PELLUCID_SIMD", "generic")
    assert json.loads(inspect_machine().stdout)["kernels_chosen"] == "generic"


def inspect_machine() -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pellucid", "inspect", "--machine", "--json"]
    return subprocess.run(command, capture_output=True, text=True)
