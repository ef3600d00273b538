"""A writer of GGUF files that knows where every field lies, so that each can be broken alone.

It shares no code with the reader it is used against.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

UINT8, INT8, UINT16, INT16, UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY = range(10)
UINT64, INT64, FLOAT64 = range(10, 13)
_FORMATS = {
    UINT8: "B",
    INT8: "b",
    UINT16: "H",
    INT16: "h",
    UINT32: "I",
    INT32: "i",
    FLOAT32: "f",
    BOOL: "B",
    UINT64: "Q",
    INT64: "q",
    FLOAT64: "d",
}
F32, F16, Q4_0, Q8_0 = 0, 1, 2, 8
_BLOCKS = {F32: (1, 4), F16: (1, 2), Q4_0: (32, 18), Q8_0: (32, 34)}
ALIGNMENT = 32


def u32(value: int) -> bytes:
    return struct.pack("<I", value)


def u64(value: int) -> bytes:
    return struct.pack("<Q", value)


def string(text: str | bytes) -> bytes:
    data = text.encode() if isinstance(text, str) else text
    return u64(len(data)) + data


def array(kind: int, values: Iterable[Any]) -> bytes:
    """An array's bytes after its own type: element type, length, elements."""
    items = list(values)
    if kind == STRING:
        data = b"".join(string(item) for item in items)
    else:
        data = struct.pack(f"<{len(items)}{_FORMATS[kind]}", *items)
    return u32(kind) + u64(len(items)) + data


@dataclass
class GgufFile:
    """Fields in file order: label -> bytes. `replace` changes one, `write` joins them."""

    fields: dict[str, bytes] = field(default_factory=dict)

    def replace(self, label: str, data: bytes) -> GgufFile:
        """A copy with one field replaced."""
        if label not in self.fields:
            raise KeyError(label)
        return GgufFile({**self.fields, label: data})

    def insert(self, before: str, label: str, data: bytes) -> GgufFile:
        """A copy with a field put before another."""
        fields = {}
        for name, value in self.fields.items():
            if name == before:
                fields[label] = data
            fields[name] = value
        return GgufFile(fields)

    def boundaries(self) -> dict[str, int]:
        """Where each field begins."""
        starts, position = {}, 0
        for label, data in self.fields.items():
            starts[label] = position
            position += len(data)
        return starts

    def header(self) -> bytes:
        """Everything before the padding."""
        parts = []
        for label, data in self.fields.items():
            if label == "padding":
                break
            parts.append(data)
        return b"".join(parts)

    def write(self) -> bytes:
        return b"".join(self.fields.values())

    def repad(self) -> GgufFile:
        """A copy whose padding fits a header of another length."""
        return self.replace("padding", bytes(-len(self.header()) % ALIGNMENT))


@dataclass(frozen=True)
class Tensor:
    """`dims` in GGUF's order, the row length first."""

    name: str
    dims: tuple[int, ...]
    type: int
    data: bytes


def gguf_file(keys: dict[str, tuple[int, bytes]], tensors: list[Tensor]) -> GgufFile:
    """A good file; keys map to (value type, value bytes)."""
    fields = {
        "magic": b"GGUF",
        "version": u32(3),
        "tensor count": u64(len(tensors)),
        "key count": u64(len(keys)),
    }
    for key, (kind, value) in keys.items():
        fields |= _key_fields(key, kind, value)
    offset = 0
    for tensor in tensors:
        fields |= _tensor_fields(tensor, offset)
        offset += len(tensor.data) + -len(tensor.data) % ALIGNMENT
    fields["padding"] = bytes(-sum(map(len, fields.values())) % ALIGNMENT)
    for tensor in tensors:
        fields[f"{tensor.name}: data"] = tensor.data
        fields[f"{tensor.name}: data padding"] = bytes(-len(tensor.data) % ALIGNMENT)
    return GgufFile(fields)


def _key_fields(key: str, kind: int, value: bytes) -> dict[str, bytes]:
    fields = {
        f"{key}: key length": u64(len(key.encode())),
        f"{key}: key": key.encode(),
        f"{key}: type": u32(kind),
    }
    if kind == ARRAY:
        fields[f"{key}: element type"] = value[:4]
        fields[f"{key}: array length"] = value[4:12]
        value = value[12:]
    fields[f"{key}: value"] = value
    return fields


def _tensor_fields(tensor: Tensor, offset: int) -> dict[str, bytes]:
    name = tensor.name
    fields = {
        f"{name}: name length": u64(len(name.encode())),
        f"{name}: name": name.encode(),
        f"{name}: n_dims": u32(len(tensor.dims)),
    }
    fields |= {f"{name}: dim {i}": u64(dim) for i, dim in enumerate(tensor.dims)}
    fields[f"{name}: type"] = u32(tensor.type)
    fields[f"{name}: offset"] = u64(offset)
    return fields


def zeros(name: str, dims: tuple[int, ...], type: int = F32) -> Tensor:
    """A tensor of zero bytes."""
    elements, size = _BLOCKS[type]
    n = 1
    for dim in dims:
        n *= dim
    return Tensor(name, dims, type, bytes(n // elements * size))


def good_file() -> GgufFile:
    """A Llama of one layer and 32 features with a SentencePiece vocabulary of 262 tokens."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁a", "b", "▁ab"]
    kinds = [2, 3, 3, *[6] * 256, 1, 1, 1]
    keys = {
        "general.architecture": (STRING, string("llama")),
        "general.name": (STRING, string("a good file")),
        "general.alignment": (UINT32, u32(ALIGNMENT)),
        "llama.block_count": (UINT32, u32(1)),
        "llama.context_length": (UINT32, u32(64)),
        "llama.embedding_length": (UINT32, u32(32)),
        "llama.feed_forward_length": (UINT32, u32(64)),
        "llama.attention.head_count": (UINT32, u32(2)),
        "llama.attention.head_count_kv": (UINT32, u32(1)),
        "llama.attention.layer_norm_rms_epsilon": (FLOAT32, struct.pack("<f", 1e-5)),
        "llama.rope.dimension_count": (UINT32, u32(16)),
        "tokenizer.ggml.model": (STRING, string("llama")),
        "tokenizer.ggml.pre": (STRING, string("default")),
        "tokenizer.ggml.tokens": (ARRAY, array(STRING, tokens)),
        "tokenizer.ggml.scores": (ARRAY, array(FLOAT32, [-float(i) for i in range(len(tokens))])),
        "tokenizer.ggml.token_type": (ARRAY, array(INT32, kinds)),
        "tokenizer.ggml.bos_token_id": (UINT32, u32(1)),
        "tokenizer.ggml.eos_token_id": (UINT32, u32(2)),
        "tokenizer.ggml.add_bos_token": (BOOL, b"\1"),
    }
    tensors = [
        zeros("token_embd.weight", (32, len(tokens)), Q8_0),
        zeros("blk.0.attn_norm.weight", (32,)),
        zeros("blk.0.attn_q.weight", (32, 32), Q4_0),
        zeros("blk.0.attn_k.weight", (32, 16), F16),
        zeros("blk.0.attn_v.weight", (32, 16), F16),
        zeros("blk.0.attn_output.weight", (32, 32), Q4_0),
        zeros("blk.0.ffn_norm.weight", (32,)),
        zeros("blk.0.ffn_gate.weight", (32, 64), Q4_0),
        zeros("blk.0.ffn_up.weight", (32, 64), Q4_0),
        zeros("blk.0.ffn_down.weight", (64, 32), Q4_0),
        zeros("output_norm.weight", (32,)),
    ]
    return gguf_file(keys, tensors)
