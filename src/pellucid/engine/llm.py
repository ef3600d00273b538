"""LLM: the engine as a Python object, with the names users know from vLLM."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pellucid.core.errors import BadInput
from pellucid.core.outputs import EmbeddingOutput, RequestOutput
from pellucid.core.params import SamplingParams
from pellucid.core.spec import ModelSpec
from pellucid.engine.bar import no_bar, progress_bar, quantising_bar
from pellucid.engine.conversation import Layout, Message
from pellucid.engine.engine import Engine
from pellucid.engine.frontend import Frontend
from pellucid.engine.gathered import Gathered
from pellucid.engine.generation import Generation
from pellucid.engine.inputs import Prompt, pair_params, pair_priorities
from pellucid.engine.loading import Loaded, load, tokens_of
from pellucid.engine.probe import Pooled
from pellucid.engine.request import Request
from pellucid.engine.sizing import NOTHING, Asked, Beside
from pellucid.engine.stream import Stream
from pellucid.hub import DEFAULT_MODEL, Progress, SilentProgress, resolve
from pellucid.ops import Ops
from pellucid.ops import backend as make_ops
from pellucid.quant.mixes import Mix, mix_named
from pellucid.sampling import Sampler
from pellucid.sampling.rows import RowsSampler
from pellucid.speculation.settings import SpeculativeSettings
from pellucid.text import Tokenizer, given_chat_template


@dataclass(frozen=True, slots=True)
class Loading:
    """How a model is to be loaded; see `load`."""

    asked: Asked
    kv_budget: int | None
    mix: Mix | None
    beside: Beside
    progress: Progress

    @property
    def note(self) -> Callable[[str], None]:
        return self.progress.note


class LLM:
    """A model ready to answer.

    model: a `.gguf` file, a folder with safetensors, a hub id or a short name. backend: one of
    `pellucid.ops.BACKENDS`. max_model_len: positions of one sequence, prompt and answer together;
    None is the model's own context, cut to what the KV pool can hold. max_num_seqs: answers that
    run at once. max_num_batched_tokens: positions of one step; longer prompts go in chunks.
    page_size: positions of a KV page. kv_cache: False computes every sequence anew for each
    token, the naive loop. enable_prefix_caching: keep the pages of what was computed, and take them
    for prompts that begin the same. policy: "continuous" batching, or "static": no request starts
    while others run, the yardstick. kv_cache_memory_bytes: what the KV pool may take; None is half
    of the memory that the weights leave. kv_cache_dtype: how keys and values are kept,
    "f32", "f16", "int8", "int4", or two for keys and values as "int8/int4"; None is "f16" on
    `native`, "f32" on `reference`. activations: what products of quantised weights read, "int8",
    "bf16" or "f32"; None is "int8" on `native`. threads: None is all cores.
    offline: never fetch. chat_template: a Jinja2 source in place of the model's own. seed: makes
    requests without a seed repeatable. progress: told what is fetched, loaded and decided.

    quantization: a type of `pellucid quantize` ("q4_k_m", "q8_0") for matrices that the model has
    in f32, f16 or bf16. speculative: how tokens are guessed ahead, the fields of
    `pellucid.speculation.settings.SpeculativeSettings`, such as `{"method": "ngram"}`; answers stay
    what they are without it.

    Raises `BadInput` (or a subclass) for an argument or a model that cannot be honoured,
    `FetchError` when the model cannot be fetched.
    """

    def __init__(
        self,
        model: str | Path = DEFAULT_MODEL,
        *,
        backend: str = "native",
        max_model_len: int | None = None,
        max_num_seqs: int | None = None,
        max_num_batched_tokens: int | None = None,
        page_size: int = 16,
        kv_cache: bool = True,
        kv_cache_memory_bytes: int | None = None,
        kv_cache_dtype: str | None = None,
        activations: str | None = None,
        enable_prefix_caching: bool = True,
        policy: str = "continuous",
        quantization: str | None = None,
        speculative: Mapping[str, Any] | None = None,
        threads: int | None = None,
        offline: bool = False,
        chat_template: str | None = None,
        seed: int | None = None,
        progress: Progress | None = None,
        **unknown: Any,
    ) -> None:
        _refuse_unknown(unknown)
        ahead = _speculative(speculative, kv_cache)
        mix = None if quantization is None else _mix(quantization)
        asked = Asked(
            max_model_len,
            max_num_seqs,
            max_num_batched_tokens,
            page_size,
            _flag("kv_cache", kv_cache),
            _flag("enable_prefix_caching", enable_prefix_caching),
            policy,
        )
        asked.check()
        budget = _count("kv_cache_memory_bytes", kv_cache_memory_bytes)
        own_seed = _seed(seed)
        progress = progress or SilentProgress()
        self.model_path = resolve(model, offline=offline, progress=progress)
        ops = make_ops(
            backend,
            threads=_count("threads", threads),
            kv_dtype=kv_cache_dtype,
            activations=activations,
        )
        beside = NOTHING
        if ahead is not None:
            from pellucid.engine import drafting  # what few starts need

            draft = drafting.find_draft(ahead, ops, offline=offline, progress=progress)
            beside = NOTHING if draft is None else draft.beside
        loaded = self._load(ops, Loading(asked, budget, mix, beside, progress))
        self.tokenizer: Tokenizer = loaded.tokenizer
        self.spec: ModelSpec = loaded.model.spec
        self.max_model_len: int = loaded.limits.max_model_len
        templates = loaded.templates
        if chat_template is not None:
            templates = given_chat_template(chat_template, self.tokenizer)
        is_token = tokens_of(self.tokenizer, self.spec.vocab_size)
        self.front = Frontend(
            loaded.tokenizer,
            templates,
            loaded.defaults,
            self.spec.vocab_size,
            self.max_model_len,
            own_seed,
            is_token,
        )
        make_sampler = RowsSampler if backend == "native" else Sampler
        speculate = None
        if ahead is not None:
            speculate = drafting.prepare_speculation(
                ahead,
                loaded,
                draft,
                lambda spec: make_sampler(tokens_of(loaded.tokenizer, spec.vocab_size)),
            )
        self._engine: Engine | None = Engine(
            loaded.model, self.tokenizer, loaded.limits, make_sampler(is_token), speculate
        )

    def _load(self, ops: Ops, loading: Loading) -> Loaded:
        """What the engine is made of."""
        with quantising_bar(loading.progress, loading.mix) as advance:
            return load(
                self.model_path,
                ops,
                loading.asked,
                loading.kv_budget,
                loading.progress.note,
                loading.mix,
                beside=loading.beside,
                progress=advance,
            )

    def generate(
        self,
        prompts: str | Mapping[str, Any] | Sequence[Any],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        parse_special: bool = False,
        priority: Sequence[int] | None = None,
        cache_salt: str | None = None,
        use_tqdm: bool = False,
    ) -> list[RequestOutput]:
        """Answers to one prompt or many, in their order.

        A prompt is a string, `{"prompt": ...}`, `{"prompt_token_ids": [...]}` or a list of ids.
        `sampling_params`: one for all or one each; None is `get_default_sampling_params()`.
        `parse_special`: control tokens spelled in a string are read as such, not as text.
        `priority`: one number for each prompt, lower ones run first. Prompts of different
        `cache_salt` share no pages. `use_tqdm`: a progress bar on standard error.

        Raises `PromptTooLong` or `BadInput` before anything is computed, `PellucidError` if the
        model breaks down.
        """
        checked = self.front.inputs.prompts(prompts, parse_special)
        return self._run(
            checked,
            sampling_params,
            priority=priority,
            cache_salt=cache_salt,
            use_tqdm=use_tqdm,
        )

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        use_tqdm: bool = False,
    ) -> list[RequestOutput]:
        """Answers to one conversation or many, through the model's chat template.

        A conversation is a list of `{"role": ..., "content": ...}`. What users write in it never
        becomes control tokens. `continue_final_message` goes on with the last message instead of
        beginning an answer. Raises as `generate`, and `BadInput` with the template's own words
        when it refuses a conversation, or when the model has no template.
        """
        many = (
            isinstance(messages, Sequence)
            and bool(messages)
            and not isinstance(messages[0], Mapping | str)
        )
        layout = Layout(tools, add_generation_prompt, continue_final_message, chat_template_kwargs)
        prompts = [
            self.front.conversation(conversation, layout)
            for conversation in (messages if many else [messages])
        ]
        return self._run(prompts, sampling_params, use_tqdm=use_tqdm)

    def stream(
        self,
        prompt: str | Mapping[str, Any] | Sequence[Any],
        sampling_params: SamplingParams | None = None,
        *,
        priority: int = 0,
        cache_salt: str | None = None,
        parse_special: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> Stream:
        """One answer as it comes: a `Stream` of `Increment`s.

        `prompt` is what `generate` takes for one prompt, or a conversation as `chat` takes it.
        Raises as they do, at once.
        """
        layout = Layout(tools, add_generation_prompt, continue_final_message, chat_template_kwargs)
        checked = self.front.prompt(prompt, layout, parse_special)
        request = self.front.request(
            checked, sampling_params, priority=priority, cache_salt=cache_salt
        )
        return Stream(self.engine, request)

    def embed(
        self,
        prompts: str | Mapping[str, Any] | Sequence[Any],
        *,
        pooling: str = "mean",
        normalize: bool = True,
        parse_special: bool = False,
    ) -> list[EmbeddingOutput]:
        """A vector for one prompt or each of many, of the model's width.

        It is the "mean" of the final, normed hidden states of a prompt's positions, or the "last"
        one; of length 1 if `normalize`. Raises `PromptTooLong` or `BadInput` before anything is
        computed.
        """
        texts = self.front.inputs.texts(prompts, parse_special)
        width = self.spec.d_model
        probes = [Pooled(text.token_ids, width, pooling, normalize) for text in texts]
        self.engine.probe(probes)
        return [
            EmbeddingOutput(
                self.front.next_id(),
                text.text,
                list(text.token_ids),
                probe.vector(),
                probe.metrics(),
            )
            for text, probe in zip(texts, probes, strict=True)
        ]

    def logits(self, token_ids: Sequence[int]) -> NDArray[np.float32]:
        """The model's scores at every position, float32 [len(token_ids), vocabulary].

        Row i scores what follows token i. Raises `BadInput` for no tokens or an id out of range,
        `PromptTooLong` for more than the context holds.
        """
        return self.engine.logits(self.front.inputs.token_ids(token_ids))

    @property
    def engine(self) -> Engine:
        """What runs the requests. Raises `BadInput` when this LLM is closed."""
        if self._engine is None:
            raise BadInput("this LLM is closed: make another one")
        return self._engine

    @property
    def has_chat_template(self) -> bool:
        """Whether `chat` is possible."""
        return self.front.conversations.possible

    def get_default_sampling_params(self) -> SamplingParams:
        """What a call without parameters uses: the model's own settings (`generation_config.json`
        or GGUF's `general.sampling`), else those of `SamplingParams()`."""
        return self.front.default_params()

    def close(self) -> None:
        """Let go of weights and cache. Any later call raises `BadInput`."""
        self._engine = None
        self.front.close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _run(
        self,
        prompts: list[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None,
        *,
        priority: Sequence[int] | None = None,
        cache_salt: str | None = None,
        use_tqdm: bool = False,
    ) -> list[RequestOutput]:
        each = pair_params(sampling_params, self.front.defaults, len(prompts))
        ranks = pair_priorities(priority, len(prompts))
        requests = [
            self.front.request(prompt, params, priority=rank, cache_salt=cache_salt)
            for prompt, params, rank in zip(prompts, each, ranks, strict=True)
        ]
        engine = self.engine
        bar = progress_bar(engine, len(requests)) if use_tqdm else no_bar()
        with bar as ended:
            return _answers(engine, requests, ended)


def _answers(
    engine: Engine, requests: list[Request], ended: Callable[[], None]
) -> list[RequestOutput]:
    """What came of each request, in their order; `ended` is called as each one ends."""
    running: deque[tuple[Generation, Gathered]] = deque()
    outputs: list[RequestOutput] = []
    try:
        for request in requests:
            result = Gathered(request)
            generation = engine.prepare(request, result)
            generation.on_end = ended
            running.append((generation, result))
            engine.enlist(generation)
        while running:
            generation, result = running[0]
            engine.run_until(lambda: generation.finished)  # noqa: B023 - called before the next
            if result.error is not None:
                raise result.error
            outputs.append(result.output())
            running.popleft()
        return outputs
    finally:
        engine.abort(*[generation for generation, _ in running])


def _refuse_unknown(unknown: Mapping[str, Any]) -> None:
    if unknown:
        raise BadInput(f"LLM has no argument {', '.join(sorted(unknown))}: leave it out")


def _speculative(given: Mapping[str, Any] | None, kv_cache: bool) -> SpeculativeSettings | None:
    if given is None:
        return None
    settings = SpeculativeSettings.of(given)
    if not kv_cache:
        raise BadInput("speculative needs the KV cache: leave kv_cache at True, or speculative out")
    return settings


def _mix(quantization: str) -> Mix:
    if not isinstance(quantization, str):
        raise BadInput(f"quantization must be the name of a type, not {quantization!r}")
    try:
        return mix_named(quantization)
    except BadInput as error:
        raise BadInput(f"quantization={quantization!r}: {error}") from error


def _flag(name: str, value: bool) -> bool:
    if not isinstance(value, bool):
        raise BadInput(f"{name} must be True or False, not {value!r}")
    return value


def _count(name: str, value: int | None) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise BadInput(f"{name} must be a whole number from 1, not {value!r}")
    return value


def _seed(value: int | None) -> int:
    if value is None:
        return int.from_bytes(os.urandom(8), "little")
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadInput(f"seed must be a whole number, not {value!r}")
    return value % (1 << 64)
