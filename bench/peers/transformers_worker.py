"""transformers on torch, the same GGUF file dequantised to float32: the clock runs around the
model's forward pass alone."""

import time
from pathlib import Path

import torch
import transformers
from serve import prompt, serve


class Transformers:
    def __init__(self, given):
        torch.set_num_threads(given["threads"])
        path = Path(given["model"])
        self.model = transformers.AutoModelForCausalLM.from_pretrained(
            path.parent, gguf_file=path.name, dtype=torch.float32
        ).eval()

    def info(self):
        versions = f"transformers {transformers.__version__}, torch {torch.__version__}"
        return {"name": "transformers", "version": versions}

    @torch.inference_mode()
    def measure(self, case, salt):
        vocab = self.model.config.vocab_size
        length = case["tokens"] if case["kind"] == "prefill" else case["context"]
        sequences = case.get("sequences", 1)
        ids = torch.tensor([prompt(s, length, vocab, salt) for s in range(sequences)])
        begin = time.perf_counter()
        output = self.model(ids, use_cache=True, logits_to_keep=1)
        if case["kind"] == "prefill":
            return length, time.perf_counter() - begin
        begin = time.perf_counter()
        for _ in range(case["tokens"]):
            ids = output.logits[:, -1:].argmax(-1)
            cache = output.past_key_values
            output = self.model(ids, past_key_values=cache, use_cache=True)
        return sequences * case["tokens"], time.perf_counter() - begin


serve(Transformers)
