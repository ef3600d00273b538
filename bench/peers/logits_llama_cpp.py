"""llama.cpp's scores of every position of a text:

    python logits_llama_cpp.py MODEL IDS.json OUT.npy THREADS

OUT.npy is float32 [positions, vocabulary]. Run by an interpreter that has llama-cpp-python.
"""

import ctypes
import json
import sys
from pathlib import Path

import llama_cpp as lc
import numpy as np

CHUNK = 512


def main():
    path, ids_path, out, threads = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
    ids = json.loads(Path(ids_path).read_text())
    lc.llama_backend_init()
    model = lc.llama_model_load_from_file(path.encode(), lc.llama_model_default_params())
    vocab = lc.llama_vocab_n_tokens(lc.llama_model_get_vocab(model))
    parameters = lc.llama_context_default_params()
    parameters.n_ctx = -(-len(ids) // 256) * 256
    parameters.n_batch = parameters.n_ubatch = CHUNK
    parameters.n_threads = parameters.n_threads_batch = threads
    context = lc.llama_init_from_model(model, parameters)
    scores = np.lib.format.open_memmap(out, "w+", np.float32, (len(ids), vocab))
    batch = lc.llama_batch_init(CHUNK, 0, 1)
    for start in range(0, len(ids), CHUNK):
        chunk = ids[start : start + CHUNK]
        batch.n_tokens = len(chunk)
        for i, token in enumerate(chunk):
            batch.token[i] = token
            batch.pos[i] = start + i
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = 0
            batch.logits[i] = 1
        if lc.llama_decode(context, batch) != 0:
            sys.exit("llama_decode failed")
        size = len(chunk) * vocab
        rows = np.ctypeslib.as_array(
            ctypes.cast(lc.llama_get_logits(context), ctypes.POINTER(ctypes.c_float)), (size,)
        )
        scores[start : start + len(chunk)] = rows.reshape(len(chunk), vocab)
    scores.flush()
    print(lc.__version__)


main()
