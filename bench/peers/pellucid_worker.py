"""Ours, as a user has it: `LLM.generate`, with scheduler, pages, greedy sampler and detokenizer in
the time."""

from serve import prompt, serve

from pellucid import LLM, SamplingParams, __version__

TOGETHER = 1e-3  # seconds between the first tokens of answers that decode together


class Pellucid:
    def __init__(self, given):
        self.llm = LLM(
            given["model"],
            backend="native",
            threads=given["threads"],
            max_model_len=given["max_model_len"],
            seed=0,
        )
        self.measured = 0

    def info(self):
        return {"name": "pellucid", "version": __version__}

    def measure(self, case, salt):
        if case["kind"] == "prefill":
            [output] = self._generate(1, case["tokens"], 1, salt)
            return case["tokens"], output.metrics.time_to_first_token
        sequences, steps = case["sequences"], case["tokens"]
        outputs = self._generate(sequences, case["context"], steps + 1, salt)
        times = [o.metrics.finished_time - o.metrics.time_to_first_token for o in outputs]
        if max(times) - min(times) > TOGETHER:
            raise RuntimeError(f"answers did not decode together: {min(times)} to {max(times)} s")
        return sequences * steps, max(times)

    def _generate(self, sequences, length, n, salt):
        vocab = self.llm.spec.vocab_size
        prompts = [
            {"prompt_token_ids": prompt(sequence, length, vocab, salt)}
            for sequence in range(sequences)
        ]
        params = SamplingParams(temperature=0, max_tokens=n, ignore_eos=True)
        self.measured += 1  # prompts of other cases begin the same: nothing is to come from them
        return self.llm.generate(prompts, params, cache_salt=str(self.measured))


serve(Pellucid)
