"""ggml's own quantizers, on tensors given as arrays:

    python quantize_llama_cpp.py ROWS.npy OUT.npz Q4_K Q6_K ...

ROWS.npy is float32 [rows, k]; OUT.npz holds the bytes, uint8, under each type's name. Run by an
interpreter that has llama-cpp-python.
"""

import ctypes
import sys
from pathlib import Path

import llama_cpp
import numpy as np

# ggml.h, enum ggml_type; bytes and elements of a block.
TYPES = {
    "Q4_0": (2, 18, 32),
    "Q4_1": (3, 20, 32),
    "Q5_0": (6, 22, 32),
    "Q5_1": (7, 24, 32),
    "Q8_0": (8, 34, 32),
    "Q4_K": (12, 144, 256),
    "Q5_K": (13, 176, 256),
    "Q6_K": (14, 210, 256),
}


def main():
    rows, out, names = np.load(sys.argv[1]), sys.argv[2], sys.argv[3:]
    library = ctypes.CDLL(str(Path(llama_cpp.__file__).parent / "lib" / "libggml-base.so"))
    quantize = library.ggml_quantize_chunk
    quantize.restype = ctypes.c_size_t
    pointer = ctypes.POINTER(ctypes.c_float)
    quantize.argtypes = [
        ctypes.c_int,
        pointer,
        ctypes.c_void_p,
        ctypes.c_int64,
        ctypes.c_int64,
        ctypes.c_int64,
        pointer,
    ]
    found = {}
    for name in names:
        number, nbytes, elements = TYPES[name]
        raw = np.zeros(rows.size // elements * nbytes, np.uint8)
        quantize(number, rows.ctypes.data_as(pointer), raw.ctypes.data, 0, *rows.shape, pointer())
        found[name] = raw
    np.savez(out, **found)


main()
