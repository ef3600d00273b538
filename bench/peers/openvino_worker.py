"""OpenVINO GenAI on the same GGUF file, greedy, by its own count of the time to the first token and
of the whole."""

import numpy as np
import openvino
import openvino_genai as genai
from serve import prompt, serve

VOCAB = 30_000  # any of the first ids; the pipeline does not say how many there are


class OpenVino:
    def __init__(self, given):
        settings = {"INFERENCE_NUM_THREADS": given["threads"]}
        self.pipeline = genai.LLMPipeline(given["model"], "CPU", **settings)

    def info(self):
        return {"name": "OpenVINO GenAI", "version": openvino.__version__}

    def measure(self, case, salt):
        if case["kind"] == "prefill":
            metrics = self._generate(1, case["tokens"], 1, salt)
            return case["tokens"], metrics.get_ttft().mean / 1e3
        sequences, steps = case["sequences"], case["tokens"]
        metrics = self._generate(sequences, case["context"], steps + 1, salt)
        whole = metrics.get_generate_duration().mean - metrics.get_ttft().mean
        return sequences * steps, whole / 1e3

    def _generate(self, sequences, length, n, salt):
        ids = np.array([prompt(s, length, VOCAB, salt) for s in range(sequences)], np.int64)
        config = genai.GenerationConfig()
        config.max_new_tokens = n
        config.ignore_eos = True
        config.do_sample = False
        inputs = genai.TokenizedInputs(openvino.Tensor(ids), openvino.Tensor(np.ones_like(ids)))
        return self.pipeline.generate(inputs, config).perf_metrics


serve(OpenVino)
