"""llama.cpp's greedy answers through its C API, plain and with a draft model.

The loop is that of its own simple speculative example with that program's settings: up to 16
guesses while the draft model gives its guess 0.75, all checked in one batch, the caches cut back
after. Its clock runs from the first token to the last.
"""

import ctypes
import time

import llama_cpp as lc
import numpy as np
from serve import serve

CHUNK = 512
MOST, SURE = 16, 0.75


class Context:
    """One model's cache of one sequence: `tokens` is what it holds."""

    def __init__(self, path, threads, length):
        self.model = lc.llama_model_load_from_file(path.encode(), lc.llama_model_default_params())
        if not self.model:
            raise ValueError(f"llama.cpp cannot load {path}")
        self.vocab = lc.llama_vocab_n_tokens(lc.llama_model_get_vocab(self.model))
        parameters = lc.llama_context_default_params()
        parameters.n_ctx = -(-length // 256) * 256
        parameters.n_batch = parameters.n_ubatch = CHUNK
        parameters.n_threads = parameters.n_threads_batch = threads
        self.context = lc.llama_init_from_model(self.model, parameters)
        self.memory = lc.llama_get_memory(self.context)
        self.batch = lc.llama_batch_init(CHUNK, 0, 1)
        self.tokens = []

    def clear(self):
        lc.llama_memory_clear(self.memory, False)
        self.tokens = []

    def cut(self, length):
        """Forget all beyond the first `length` tokens."""
        if length < len(self.tokens):
            lc.llama_memory_seq_rm(self.memory, 0, length, -1)
            del self.tokens[length:]

    def compute(self, tokens, n_logits):
        """Append `tokens`; scores of the last `n_logits`, float32 [n_logits, vocabulary]."""
        for start in range(0, len(tokens), CHUNK):
            some = tokens[start : start + CHUNK]
            self.batch.n_tokens = len(some)
            for i, token in enumerate(some):
                self.batch.token[i] = token
                self.batch.pos[i] = len(self.tokens) + i
                self.batch.n_seq_id[i] = 1
                self.batch.seq_id[i][0] = 0
                self.batch.logits[i] = start + i >= len(tokens) - n_logits
            if lc.llama_decode(self.context, self.batch) != 0:
                raise RuntimeError("llama_decode failed")
            self.tokens += some
        last = len(some) - n_logits
        rows = [lc.llama_get_logits_ith(self.context, last + i) for i in range(n_logits)]
        return [np.ctypeslib.as_array(row, (self.vocab,)) for row in rows]


class LlamaCpp:
    def __init__(self, given):
        silent = lc.llama_log_callback(lambda level, text, data: None)
        lc.llama_log_set(silent, ctypes.c_void_p(0))
        self.silent = silent  # it must outlive the library's use of it
        lc.llama_backend_init()
        self.target = Context(given["model"], given["threads"], given["context"])
        self.drafter = Context(given["draft"], given["threads"], given["context"])

    def info(self):
        return {"name": "llama.cpp", "version": f"llama-cpp-python {lc.__version__}"}

    def measure(self, case, salt):
        """case: {"prompt": ids, "tokens": how many, "speculative": bool}."""
        self.target.clear()
        self.drafter.clear()
        prompt, length = case["prompt"], case["tokens"]
        [scores] = self.target.compute(prompt, 1)
        answer = [int(scores.argmax())]
        if case["speculative"]:  # the draft model reads the prompt when the target does
            self.drafter.compute(prompt, 1)
        begin = time.perf_counter()
        while len(answer) < length:
            guesses = []
            if case["speculative"]:
                guesses = self._draft(prompt + answer, min(MOST, length - len(answer) - 1))
            answer += self._check(answer[-1], guesses)
        return length - 1, time.perf_counter() - begin

    def _draft(self, text, most):
        guesses = []
        while len(guesses) < most:
            known = len(self.drafter.tokens)
            [scores] = self.drafter.compute((text + guesses)[known:], 1)
            best = int(scores.argmax())
            if 1.0 / float(np.exp(scores - scores[best]).sum()) < SURE:
                break
            guesses.append(best)
        return guesses

    def _check(self, last, guesses):
        """The tokens that follow: guesses that are right, and one more."""
        start = len(self.target.tokens)
        rows = self.target.compute([last, *guesses], 1 + len(guesses))
        taken = []
        for row, guess in zip(rows, [*guesses, None], strict=True):
            taken.append(int(row.argmax()))
            if taken[-1] != guess:
                break
        self.target.cut(start + len(taken))
        self.drafter.cut(start + len(taken))
        return taken


serve(LlamaCpp)
