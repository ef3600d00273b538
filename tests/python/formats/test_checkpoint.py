"""What a Checkpoint promises whatever the file: views, rows, release, close."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import quants
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pellucid.core.errors import FormatError
from pellucid.formats import Checkpoint, open_checkpoint

N_ROWS = 40
TYPES = {"f32": "F32", "f16": "F16", "q8": "Q8_0", "q4": "Q4_1"}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkpoint]:
    path = tmp_path_factory.mktemp("c") / "a.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    values = np.random.default_rng(0).standard_normal((N_ROWS, 64)).astype(np.float32)
    for name, type_name in TYPES.items():
        type = gguf.GGMLQuantizationType[type_name]
        writer.add_tensor(name, quants.quantize(values, type), raw_dtype=type)
    writer.add_tensor("cube", values.reshape(4, 10, 64))
    writer.add_tensor("flat", values[0])
    writer.add_tensor("long", np.zeros(1 << 20, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with open_checkpoint(path) as opened:
        yield opened


@pytest.mark.parametrize("name", [*TYPES, "cube", "flat"])
@given(data=st.data())
@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_rows_are_the_rows_of_the_whole(
    name: str, data: st.DataObject, checkpoint: Checkpoint
) -> None:
    n_rows = checkpoint.tensors[name].shape[0]
    rows = data.draw(st.lists(st.integers(0, n_rows - 1), max_size=12))
    np.testing.assert_array_equal(checkpoint.rows(name, rows), checkpoint.read(name)[rows])


@pytest.mark.parametrize("row", [-1, N_ROWS, 1 << 40])
def test_rows_that_are_not_there(row: int, checkpoint: Checkpoint) -> None:
    with pytest.raises(IndexError, match="q4 has rows 0 to 39"):
        checkpoint.rows("q4", [0, row])


def test_raw_is_a_read_only_view(checkpoint: Checkpoint) -> None:
    raw = checkpoint.raw("q4")
    assert raw.dtype == np.uint8 and raw.shape == (checkpoint.tensors["q4"].nbytes,)
    assert not raw.flags.writeable and not raw.flags.owndata
    assert np.shares_memory(checkpoint.read("f32"), checkpoint.raw("f32"))


def test_a_missing_tensor_is_named(checkpoint: Checkpoint) -> None:
    for read in (checkpoint.read, checkpoint.raw, lambda name: checkpoint.rows(name, [0])):
        with pytest.raises(FormatError, match=r"a\.gguf: tensor 'nope': is missing"):
            read("nope")


def test_released_pages_come_back_the_same(checkpoint: Checkpoint) -> None:
    for name in checkpoint.tensors:
        before = checkpoint.read(name).copy()
        checkpoint.release(name)
        np.testing.assert_array_equal(checkpoint.read(name), before)
    before = checkpoint.read("q4")
    checkpoint.release()
    np.testing.assert_array_equal(checkpoint.read("q4"), before)


def resident(path: Path) -> int:
    """Resident bytes of a file's mappings in this process."""
    total, within = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if re.match("[0-9a-f]+-[0-9a-f]+ ", line):
            within = line.endswith(str(path))
        elif within and line.startswith("Rss:"):
            total += int(line.split()[1]) * 1024
    return total


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="reads Linux's memory map")
def test_release_gives_the_pages_back(checkpoint: Checkpoint) -> None:
    checkpoint.release()
    assert checkpoint.read("long").sum() == 0
    assert resident(checkpoint.path) >= 4 << 20
    checkpoint.release("long")
    assert resident(checkpoint.path) < 1 << 20


def test_closing_keeps_views_and_refuses_new_ones(checkpoint: Checkpoint) -> None:
    again = open_checkpoint(checkpoint.path)
    view = again.read("f32")
    again.close()
    again.close()
    np.testing.assert_array_equal(view, checkpoint.read("f32"))
    with pytest.raises(ValueError, match="is closed"):
        again.read("f32")
