"""A process that answers with one token and ends:

    python first_token_llama_cpp.py MODEL THREADS PROMPT

Run by an interpreter that has llama-cpp-python; the Python package around the C API is not used.
"""

import ctypes
import sys

import llama_cpp as lc


def main():
    path, threads, text = sys.argv[1], int(sys.argv[2]), sys.argv[3].encode()
    silent = lc.llama_log_callback(lambda level, message, data: None)
    lc.llama_log_set(silent, ctypes.c_void_p(0))
    lc.llama_backend_init()
    model = lc.llama_model_load_from_file(path.encode(), lc.llama_model_default_params())
    vocab = lc.llama_model_get_vocab(model)
    parameters = lc.llama_context_default_params()
    parameters.n_threads = parameters.n_threads_batch = threads
    context = lc.llama_init_from_model(model, parameters)
    tokens = (lc.llama_token * 512)()
    n = lc.llama_tokenize(vocab, text, len(text), tokens, 512, True, False)
    lc.llama_decode(context, lc.llama_batch_get_one(tokens, n))
    scores = lc.llama_get_logits_ith(context, -1)
    best = max(range(lc.llama_vocab_n_tokens(vocab)), key=scores.__getitem__)
    piece = ctypes.create_string_buffer(64)
    length = lc.llama_token_to_piece(vocab, best, piece, 64, 0, True)
    sys.stdout.buffer.write(piece.raw[:length])
    sys.stdout.flush()


main()
