"""Attacks on the GGUF reader."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path

from attacks.attack import Attack, Stage, of_bytes
from attacks.gguf_file import (
    ARRAY,
    BOOL,
    FLOAT32,
    INT32,
    STRING,
    UINT8,
    UINT16,
    GgufFile,
    gguf_file,
    good_file,
    string,
    u32,
    u64,
    zeros,
)

NAME = "general.name"
ALIGN = "general.alignment"
TOKENS = "tokenizer.ggml.tokens"
SCORES = "tokenizer.ggml.scores"
Q = "blk.0.attn_q.weight"
K = "blk.0.attn_k.weight"


def gguf_attacks() -> list[Attack]:
    return [
        *_cut_short(),
        *_header(),
        *_keys(),
        *_arrays(),
        *_alignment(),
        *_tensors(),
        *_placement(),
        *_split(),
        *_content(),
    ]


def _gguf(
    name: str, make: Callable[[GgufFile], GgufFile], error: str, stage: Stage = "format"
) -> Attack:
    return of_bytes(name, lambda: make(good_file()).write(), error, f"{name}.gguf", stage)


def _replaced(name: str, label: str, data: bytes, error: str) -> Attack:
    return _gguf(name, lambda good: good.replace(label, data), error)


def _cut_short() -> Iterator[Attack]:
    """Cut before every field and in the middle of every field; and by a single byte."""
    good = good_file()
    whole = good.write()
    cuts = {}
    for label, start in good.boundaries().items():
        if good.fields[label]:
            cuts[start] = label
            cuts[start + len(good.fields[label]) // 2] = label
    cuts[len(whole) - 1] = "the last byte"
    for cut in sorted(cuts):
        yield of_bytes(
            f"cut-at-{cut}",
            lambda cut=cut: whole[:cut],  # type: ignore[misc]
            r"empty|magic|needs|rest of the file|cut short|ends at byte|past the end|has .* left",
            f"cut-at-{cut}.gguf",
        )


def _header() -> Iterator[Attack]:
    yield _replaced("version-0", "version", u32(0), r"version \(byte 4\).*version 0 is not impl")
    yield _replaced("version-1", "version", u32(1), r"version 1 is not implemented")
    yield _replaced("version-4", "version", u32(4), r"version 4 is not implemented")
    yield _replaced("big-endian", "version", struct.pack(">I", 3), "big endian")
    for count in (1 << 63, (1 << 64) - 1, 1 << 32):
        yield _replaced(f"tensor-count-{count}", "tensor count", u64(count), "tensor count")
        yield _replaced(f"key-count-{count}", "key count", u64(count), "key count")
    yield _replaced("tensor-count-131072", "tensor count", u64(1 << 17), "rest of the file")
    yield _replaced("key-count-65536", "key count", u64(1 << 16), "rest of the file")
    yield _replaced("one-tensor-more", "tensor count", u64(12), "tensor")
    yield _replaced("one-key-more", "key count", u64(20), "key|type")


def _keys() -> Iterator[Attack]:
    for length in (0, 65_536, 1 << 30, 1 << 63, (1 << 64) - 1):
        yield _replaced(f"key-length-{length}", f"{NAME}: key length", u64(length), "metadata key")
    yield _replaced("key-bad-utf8", f"{NAME}: key", b"general.\xff\xfe\xfd\xfc", "key 1.*UTF-8")
    yield _gguf("key-twice", _key_twice, "'general.name'.*occurs twice")
    for kind in (13, 1 << 31, (1 << 32) - 1):
        yield _replaced(f"value-type-{kind}", f"{NAME}: type", u32(kind), "not a type from 0 to 12")
    for length in (1 << 30, 1 << 40, (1 << 64) - 8):
        data = u64(length) + b"a good file"
        yield _replaced(f"string-length-{length}", f"{NAME}: value", data, "'general.name'.*length")
    yield _replaced("string-bad-utf8", f"{NAME}: value", string(b"a \xc3\x28"), "valid UTF-8")
    yield _replaced("boolean-2", "tokenizer.ggml.add_bos_token: value", b"\2", "must be 0 or 1")
    yield of_bytes("string-2^30-array-2^40", _short_file, "needs|rest|length", "short.gguf")


def _key_twice(good: GgufFile) -> GgufFile:
    again = u64(len(NAME)) + NAME.encode() + u32(STRING) + string("again")
    return good.insert(f"{ALIGN}: key length", "again", again).replace("key count", u64(20)).repad()


def _short_file() -> bytes:
    """160 bytes that speak of an array of 2^40 strings of 2^30 bytes."""
    data = b"GGUF" + u32(3) + u64(0) + u64(1) + string("a") + u32(ARRAY)
    data += u32(STRING) + u64(1 << 40) + u64(1 << 30)
    return data + bytes(160 - len(data))


def _arrays() -> Iterator[Attack]:
    for length in (1 << 40, 1 << 61, 1 << 62, (1 << 64) - 1):
        for key in (TOKENS, SCORES):
            short = key.rsplit(".", 1)[1]
            label = f"{key}: array length"
            yield _replaced(f"{short}-length-{length}", label, u64(length), f"{key}.*length")
    yield _replaced("element-type-13", f"{SCORES}: element type", u32(13), "element type")
    yield _replaced("nested-array", f"{SCORES}: element type", u32(ARRAY), "arrays of arrays")
    yield _gguf("array-nested-100000-deep", _nested, "arrays of arrays")
    bad = u64(5) + b"<unk\xff"
    yield _gguf("token-bad-utf8", lambda good: _first_token(good, bad), "string 0.*UTF-8")
    for length in (1 << 30, 1 << 63, (1 << 64) - 8):
        long = u64(length) + b"<unk>"
        error = rf"{TOKENS}.*string 0.*has {length} bytes"
        yield _gguf(f"token-length-{length}", lambda g, d=long: _first_token(g, d), error)  # type: ignore[misc]
    yield _gguf("boolean-array-7", _boolean_array, "neither 0 nor 1")


def _nested(good: GgufFile) -> GgufFile:
    changed = good.replace(f"{SCORES}: element type", u32(ARRAY))
    return changed.replace(f"{SCORES}: value", (u32(ARRAY) + u64(1)) * 100_000)


def _first_token(good: GgufFile, data: bytes) -> GgufFile:
    label = f"{TOKENS}: value"
    return good.replace(label, data + good.fields[label][13:])


def _boolean_array(good: GgufFile) -> GgufFile:
    return good.replace(f"{SCORES}: element type", u32(BOOL)).replace(
        f"{SCORES}: value", bytes([0, 1, 7] * 100)[:262]
    )


def _alignment() -> Iterator[Attack]:
    for value in (0, 1, 3, 48, 1 << 30, (1 << 32) - 1):
        error = rf"'general.alignment' \(byte \d+\): is {value}, must be a power of two"
        yield _replaced(f"alignment-{value}", f"{ALIGN}: value", u32(value), error)
    yield _replaced("alignment-int32", f"{ALIGN}: type", u32(INT32), "is int32, must be uint32")
    yield _gguf("alignment-string", _alignment_string, "is string, must be uint32")


def _alignment_string(good: GgufFile) -> GgufFile:
    changed = good.replace(f"{ALIGN}: type", u32(STRING))
    return changed.replace(f"{ALIGN}: value", string("32")).repad()


def _tensors() -> Iterator[Attack]:
    yield _replaced("tensor-twice", f"{K}: name", Q.encode(), f"{Q}.*occurs twice")
    yield _replaced("tensor-bad-utf8", f"{Q}: name", b"\xff" * len(Q), "UTF-8")
    for length in (0, 65_536, 1 << 63):
        yield _replaced(
            f"tensor-name-length-{length}", f"{Q}: name length", u64(length), "tensor 2"
        )
    for n_dims in (5, 9, (1 << 32) - 1):
        error = f"{Q}.*dimension count.*is {n_dims}"
        yield _replaced(f"n_dims-{n_dims}", f"{Q}: n_dims", u32(n_dims), error)
    for dim in (0, (1 << 48) + 1, 1 << 63, (1 << 64) - 1):
        yield _replaced(f"dim-{dim}", f"{Q}: dim 1", u64(dim), f"{Q}.*dimension 1.*is {dim}")
    yield _replaced("dim-2^42+1", f"{Q}: dim 1", u64((1 << 42) + 1), f"{Q}.*ends at byte")
    yield _gguf("product-wraps", lambda g: _dims(g, 1 << 32, 1 << 32), f"{Q}.*2\\^48 elements")
    yield _gguf("product-2^48", lambda g: _dims(g, 1 << 24, 1 << 24), f"{Q}.*ends at byte")
    yield _replaced("row-not-blocks", f"{Q}: dim 0", u64(33), f"{Q}.*do not divide into Q4_0")
    yield _replaced("one-row-more", "output_norm.weight: dim 0", u64(33), "output_norm.*ends at")
    for number in (4, 36, 40, 999, 1000, 1001, (1 << 32) - 1):
        error = f"{Q}.*type number {number} is unknown"
        yield _replaced(f"type-{number}", f"{Q}: type", u32(number), error)


def _dims(good: GgufFile, row: int, rows: int) -> GgufFile:
    return good.replace(f"{Q}: dim 0", u64(row)).replace(f"{Q}: dim 1", u64(rows))


def _placement() -> Iterator[Attack]:
    for offset in (1, 33, (1 << 64) - 1):
        error = f"{Q}.*no multiple of the alignment"
        yield _replaced(f"offset-{offset}", f"{Q}: offset", u64(offset), error)
    for offset in (1 << 20, 1 << 40, 1 << 63, (1 << 64) - 32):
        error = f"{Q}.*ends at byte"
        yield _replaced(f"offset-{offset}", f"{Q}: offset", u64(offset), error)
    yield _replaced("overlap", f"{Q}: offset", u64(0), "overlaps")
    yield _gguf("same-place", _same_place, "overlaps")


def _same_place(good: GgufFile) -> GgufFile:
    return good.replace(f"{K}: offset", good.fields[f"{Q}: offset"])


def _split() -> Iterator[Attack]:
    one = "model-00001-of-00002.gguf"
    two = "model-00002-of-00002.gguf"
    yield Attack("split-part-missing", lambda f: _write(f, {one: _part(0, 2)}), two)
    yield Attack("split-second-first", lambda f: _write(f, {two: _part(1, 2)}), "not the first")
    yield Attack("split-count-65535", lambda f: _write(f, {one: _part(0, 65_535)}), "split.count")
    yield Attack("split-other-name", lambda f: _write(f, {"m.gguf": _part(0, 2)}), "split.count")
    yield Attack("split-cycle", _split_cycle, "split.no")
    both = {one: _part(0, 2), two: _part(1, 2, tensor="part0.weight")}
    yield Attack("split-tensor-twice", lambda f: _write(f, both), "already in an earlier file")
    total = {one: _part(0, 2, total=9), two: _part(1, 2)}
    yield Attack("split-tensors-missing", lambda f: _write(f, total), "split.tensors.count")


def _part(number: int, count: int, tensor: str = "", total: int = 2) -> bytes:
    keys = {
        "general.architecture": (STRING, string("llama")),
        "split.no": (UINT16, struct.pack("<H", number)),
        "split.count": (UINT16, struct.pack("<H", count)),
        "split.tensors.count": (INT32, struct.pack("<i", total)),
    }
    return gguf_file(keys, [zeros(tensor or f"part{number}.weight", (32,))]).write()


def _write(folder: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder / next(iter(files))


def _split_cycle(folder: Path) -> Path:
    """The second part is a link to the first."""
    first = _write(folder, {"model-00001-of-00002.gguf": _part(0, 2)})
    (folder / "model-00002-of-00002.gguf").symlink_to(first.name)
    return first


def _content() -> Iterator[Attack]:
    """Sound files that make no sense as a model or vocabulary."""
    yield _gguf("scores-u8", _scores_u8, "scores", "tokenizer")
    yield _gguf("token-<0x-1>", _byte_token, "<0x-1>", "tokenizer")
    yield _gguf("token_type-float", _float_kinds, "token_type", "tokenizer")
    yield _gguf("eos-out-of-range", _eos, "eos_token_id", "tokenizer")
    yield _gguf("wrong-shape", lambda g: _dims(g, 64, 16), f"{Q}", "model")
    yield _gguf("layers-2^31", _layers, "block_count|blk.1", "model")
    yield _gguf("tensor-missing", _tensor_renamed, Q, "model")


def _scores_u8(good: GgufFile) -> GgufFile:
    changed = good.replace(f"{SCORES}: element type", u32(UINT8))
    return changed.replace(f"{SCORES}: value", bytes(262)).repad()


def _byte_token(good: GgufFile) -> GgufFile:
    label = f"{TOKENS}: value"
    return good.replace(label, good.fields[label].replace(b"<0x00>", b"<0x-1>"))


def _float_kinds(good: GgufFile) -> GgufFile:
    return good.replace("tokenizer.ggml.token_type: element type", u32(FLOAT32))


def _eos(good: GgufFile) -> GgufFile:
    return good.replace("tokenizer.ggml.eos_token_id: value", u32(1 << 31))


def _layers(good: GgufFile) -> GgufFile:
    return good.replace("llama.block_count: value", u32(1 << 31))


def _tensor_renamed(good: GgufFile) -> GgufFile:
    return good.replace(f"{Q}: name", b"x" + Q.encode()[1:])
