"""llama.cpp's tokens a second for the steps of step.py, through its C API: no Python in a step.

    python llama_step.py MODEL THREADS SECONDS CLOCK CASES_JSON

Run by an interpreter that has llama-cpp-python; prints one JSON object as its last line.
"""

import ctypes
import json
import statistics
import sys
import time

import llama_cpp as lc


def batch_of(rows):
    """rows: (token, position, sequence, wants logits)."""
    batch = lc.llama_batch_init(len(rows), 0, 1)
    batch.n_tokens = len(rows)
    for i, (token, position, sequence, logits) in enumerate(rows):
        batch.token[i] = token
        batch.pos[i] = position
        batch.n_seq_id[i] = 1
        batch.seq_id[i][0] = sequence
        batch.logits[i] = logits
    return batch


def measure(model, threads, case, seconds, clock):
    sequences, before, length = case
    parameters = lc.llama_context_default_params()
    parameters.n_ctx = sequences * (before + length + 256)
    parameters.n_batch = parameters.n_ubatch = max(512, sequences * length)
    parameters.n_seq_max = sequences
    parameters.n_threads = parameters.n_threads_batch = threads
    context = lc.llama_init_from_model(model, parameters)
    memory = lc.llama_get_memory(context)

    def step(start, count):
        rows = [
            (100 + i, start + i, s, i == count - 1) for s in range(sequences) for i in range(count)
        ]
        batch = batch_of(rows)
        begin = clock()
        if lc.llama_decode(context, batch) != 0:
            raise RuntimeError("llama_decode failed")
        lc.llama_get_logits_ith(context, -1)
        taken = clock() - begin
        lc.llama_batch_free(batch)
        return taken

    for start in range(0, before, 512):
        for s in range(sequences):
            count = min(512, before - start)
            rows = [(100 + i, start + i, s, i == count - 1) for i in range(count)]
            batch = batch_of(rows)
            lc.llama_decode(context, batch)
            lc.llama_batch_free(batch)
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 3:
        if length == 1:
            times.append(step(before + len(times) % 200, 1))
            if len(times) % 200 == 0:
                for s in range(sequences):
                    lc.llama_memory_seq_rm(memory, s, before, -1)
        else:
            lc.llama_memory_clear(memory, False)
            times.append(step(0, length))
    lc.llama_free(context)
    return sequences * length / statistics.median(times)


def main():
    path, threads, seconds, clock, cases = sys.argv[1:6]
    clock = {"wall": time.perf_counter, "cpu": time.thread_time}[clock]
    silent = lc.llama_log_callback(lambda level, text, data: None)
    lc.llama_log_set(silent, ctypes.c_void_p(0))
    lc.llama_backend_init()
    model = lc.llama_model_load_from_file(path.encode(), lc.llama_model_default_params())
    rates = {
        name: measure(model, int(threads), case, float(seconds), clock)
        for name, case in json.loads(cases).items()
    }
    print(json.dumps(rates))


main()
