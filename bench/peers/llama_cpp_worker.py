"""llama.cpp through its C API: the clock runs around llama_decode alone.

No sampling, no detokenizing and no Python loop is in its time. A quarter of each case is tried with
flash attention and without, and the faster setting kept.
"""

import ctypes
import time

import llama_cpp as lc
from serve import prompt, serve

CHUNK = 512  # llama.cpp's own default for n_ubatch


class Session:
    """A context for one case."""

    def __init__(self, model, threads, case, flash):
        self.case = case
        self.sequences = case.get("sequences", 1)
        self.vocab = lc.llama_vocab_n_tokens(lc.llama_model_get_vocab(model))
        length = case.get("context", 0) + case["tokens"]
        parameters = lc.llama_context_default_params()
        parameters.n_ctx = self.sequences * -(-length // 256) * 256
        parameters.n_batch = parameters.n_ubatch = CHUNK
        parameters.n_seq_max = self.sequences
        parameters.n_threads = parameters.n_threads_batch = threads
        parameters.flash_attn_type = (
            lc.LLAMA_FLASH_ATTN_TYPE_ENABLED if flash else lc.LLAMA_FLASH_ATTN_TYPE_DISABLED
        )
        self.context = lc.llama_init_from_model(model, parameters)
        if not self.context:
            raise MemoryError(f"llama.cpp gives no context for {case}")
        self.memory = lc.llama_get_memory(self.context)
        self.batch = lc.llama_batch_init(CHUNK, 0, 1)

    def close(self):
        lc.llama_batch_free(self.batch)
        lc.llama_free(self.context)

    def measure(self, salt):
        lc.llama_memory_clear(self.memory, False)
        if self.case["kind"] == "prefill":
            return self.case["tokens"], self._prefill(0, self.case["tokens"], salt)
        context, steps = self.case["context"], self.case["tokens"]
        seconds = 0.0
        if self.case["kind"] == "serve":
            seconds = self._prefill_all(context, salt)
        else:
            for sequence in range(self.sequences):
                self._prefill(sequence, context, salt)
        for step in range(steps):
            position = context + step
            rows = [(salt % 1000 + position + s, position, s, 1) for s in range(self.sequences)]
            seconds += self._decode(rows)
        return self.sequences * steps, seconds

    def _prefill(self, sequence, length, salt):
        tokens = prompt(sequence, length, self.vocab, salt)
        seconds = 0.0
        for start in range(0, length, CHUNK):
            end = min(start + CHUNK, length)
            rows = [(tokens[p], p, sequence, p == length - 1) for p in range(start, end)]
            seconds += self._decode(rows)
        return seconds

    def _prefill_all(self, length, salt):
        """Every sequence's prompt, several in a batch."""
        rows = [
            (token, position, sequence, position == length - 1)
            for sequence in range(self.sequences)
            for position, token in enumerate(prompt(sequence, length, self.vocab, salt))
        ]
        starts = range(0, len(rows), CHUNK)
        return sum(self._decode(rows[start : start + CHUNK]) for start in starts)

    def _decode(self, rows):
        """Seconds of one llama_decode of rows (token, position, sequence, wants logits)."""
        batch = self.batch
        batch.n_tokens = len(rows)
        for i, (token, position, sequence, logits) in enumerate(rows):
            batch.token[i] = token
            batch.pos[i] = position
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = sequence
            batch.logits[i] = logits
        begin = time.perf_counter()
        status = lc.llama_decode(self.context, batch)
        lc.llama_synchronize(self.context)
        seconds = time.perf_counter() - begin
        if status != 0:
            raise RuntimeError(f"llama_decode returned {status}")
        return seconds


class LlamaCpp:
    def __init__(self, given):
        silent = lc.llama_log_callback(lambda level, text, data: None)
        lc.llama_log_set(silent, ctypes.c_void_p(0))
        self.silent = silent  # it must outlive the library's use of it
        lc.llama_backend_init()
        parameters = lc.llama_model_default_params()
        self.model = lc.llama_model_load_from_file(given["model"].encode(), parameters)
        if not self.model:
            raise ValueError(f"llama.cpp cannot load {given['model']}")
        self.threads = given["threads"]
        self.sessions = {}

    def info(self):
        return {
            "name": "llama.cpp",
            "version": f"llama-cpp-python {lc.__version__}",
            "system": lc.llama_print_system_info().decode().strip(),
        }

    def measure(self, case, salt):
        key = tuple(sorted(case.items()))
        if key not in self.sessions:
            flash = self._flash_is_faster(case, salt)
            self.sessions[key] = Session(self.model, self.threads, case, flash)
        return self.sessions[key].measure(salt)

    def _flash_is_faster(self, case, salt):
        part = {**case, "tokens": -(-case["tokens"] // 4)}
        seconds = {}
        for flash in (True, False):
            session = Session(self.model, self.threads, part, flash)
            seconds[flash] = session.measure(salt)[1]
            session.close()
        return seconds[True] < seconds[False]


serve(LlamaCpp)
