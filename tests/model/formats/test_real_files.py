"""Real GGUF files, read as the gguf package reads them."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import quants

from pellucid.core.errors import FormatError
from pellucid.formats import open_checkpoint
from pellucid.formats.inspect import describe


def assert_same_values(reader: gguf.GGUFReader, path: Path) -> None:
    """Every tensor's place, and the values of one tensor of each type and shape."""
    compared = set()
    with open_checkpoint(path) as checkpoint:
        assert list(checkpoint.tensors) == [tensor.name for tensor in reader.tensors]
        for theirs in reader.tensors:
            ours = checkpoint.tensors[theirs.name]
            assert (ours.offset, ours.nbytes) == (theirs.data_offset, theirs.n_bytes)
            if (ours.type, ours.shape) in compared:
                continue
            compared.add((ours.type, ours.shape))
            values = checkpoint.read(theirs.name)
            expected = quants.dequantize(theirs.data, theirs.tensor_type)
            np.testing.assert_array_equal(values.view(np.uint32), expected.view(np.uint32))
            checkpoint.release(theirs.name)


def assert_same_metadata(reader: gguf.GGUFReader, path: Path) -> None:
    fields = {key: field for key, field in reader.fields.items() if not key.startswith("GGUF.")}
    with open_checkpoint(path) as checkpoint:
        assert set(checkpoint.metadata) == set(fields)
        for key, value in checkpoint.metadata.items():
            theirs = fields[key].contents()
            assert value.tolist() == theirs if isinstance(value, np.ndarray) else value == theirs


def test_smollm2_is_what_the_gguf_package_reads(smollm2_path: Path) -> None:
    reader = gguf.GGUFReader(smollm2_path)
    assert_same_values(reader, smollm2_path)
    assert_same_metadata(reader, smollm2_path)


def test_smollm2_described(smollm2_path: Path) -> None:
    with open_checkpoint(smollm2_path) as checkpoint:
        description = describe(checkpoint)
    assert (description.architecture, description.parameters) == ("llama", 134_515_008)
    assert description.file_bytes == smollm2_path.stat().st_size
    assert [group.layer for group in description.groups] == [None, *range(30)]
    assert 0.97 < description.weight_bytes / description.file_bytes < 1


@pytest.mark.parametrize("row", [0, 17, 49_151])
def test_embedding_rows_of_smollm2(row: int, smollm2_path: Path) -> None:
    with open_checkpoint(smollm2_path) as checkpoint:
        whole = checkpoint.read("token_embd.weight")
        np.testing.assert_array_equal(checkpoint.rows("token_embd.weight", [row])[0], whole[row])


def test_smollm2_cut_by_one_byte_is_refused(smollm2_path: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(smollm2_path.read_bytes()[:-1])
    with pytest.raises(FormatError, match="is cut short or damaged"):
        open_checkpoint(cut)


def test_qwen_is_what_the_gguf_package_reads(qwen_path: Path) -> None:
    """Its 303,323 strings take the fast path of string arrays."""
    reader = gguf.GGUFReader(qwen_path)
    assert_same_values(reader, qwen_path)
    assert_same_metadata(reader, qwen_path)
