"""The runner that every model family passes with tiny random configurations.

A family's test file holds one subclass of `FamilySuite` and a table of `Case`s. For each case a
random model is made by transformers, saved as a folder, opened by us, and judged:

1. logits agree with transformers' at several lengths, within a tolerance derived from float32;
2. decode, one token at a time through scattered pages beside another sequence, gives the very
   bits of prefill, and so does a prompt cut into chunks;
3. each planted fault of the case makes the first check fail;
4. config.json in full, and as older versions wrote it, gives the same specification;
5. a GGUF file of the same weights, written by its converter's rules, agrees too, and so does
   the one that we write ourselves.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pellucid.convert.folder import folder_model
from pellucid.convert.write import choose, write_quantized
from pellucid.core.errors import UnsupportedError
from pellucid.core.plan import Plan, Span
from pellucid.core.spec import LayerSpec, ModelSpec
from pellucid.formats import Checkpoint, Metadata, open_checkpoint
from pellucid.models.registry import Model, load_model, read_spec
from pellucid.models.weights import Weights
from pellucid.ops.reference import ReferenceOps
from pellucid.quant.mixes import mix_named

from .gguf_twin import Recipe, write_gguf

Float32 = NDArray[np.float32]
Fault = Callable[[Model], Model]

UNIT = 2.0**-24  # half the distance between 1 and the next float32
ROUNDINGS_PER_LAYER = 8  # results that are summed into the residual stream or scaled on the way
AMPLIFICATION = 2.0  # a relative error of a score of size s is s times as large after exp


@dataclass(frozen=True, eq=False)
class Case:
    """A tiny model and what to ask of it.

    `config` names a configuration class of transformers and `settings` its arguments.
    `context` is the length we are told the model will be used at. `stepwise` asks transformers
    token by token, for what it decides by the length so far. `weights` is the standard deviation
    of a matrix product on unit inputs: large enough that attention is far from uniform.
    `llama_cpp_differs` says why llama.cpp is no judge of the GGUF form, where it is none;
    `not_in_gguf` is what our own writer says that the format has no place for, a pattern.
    """

    config: str
    settings: Mapping[str, Any]
    faults: Mapping[str, Fault] = field(default_factory=dict)
    gguf: Recipe | None = None
    lengths: tuple[int, ...] = (1, 5, 33)
    context: int | None = None
    stepwise: bool = False
    weights: float = 1.4
    seed: int = 0
    llama_cpp_differs: str = ""
    not_in_gguf: str = ""


@pytest.mark.filterwarnings("ignore:.past_key_values. is deprecated:FutureWarning")
class FamilySuite:
    """Subclass it, set CASES, and pytest does the rest (see conftest.py)."""

    CASES: Mapping[str, Case]

    def test_logits_agree_with_transformers(self, built: Built) -> None:
        for length in built.case.lengths:
            tokens = built.tokens(length)
            assert_agree(run(built.model, tokens), built.truth(tokens), built.spec, "prefill")

    def test_decode_and_chunks_give_the_bits_of_prefill(self, built: Built) -> None:
        tokens = built.tokens(max(built.case.lengths))
        whole = run(built.model, tokens)
        n = len(tokens)
        for page_size, cuts in ((1, range(1, n)), (3, (n // 3, n // 2)), (16, (n - 1,))):
            pieces = run(built.model, tokens, page_size=page_size, cuts=cuts, company=True)
            np.testing.assert_array_equal(pieces, whole, err_msg=f"page size {page_size}")

    def test_a_planted_fault_is_found(self, built: Built, fault: str) -> None:
        tokens = built.tokens(max(built.case.lengths))
        broken = built.case.faults[fault](built.model)
        with pytest.raises(Disagreement):
            assert_agree(run(broken, tokens), built.truth(tokens), built.spec, fault)

    def test_every_form_of_the_configuration_says_the_same(self, built: Built) -> None:
        complete = json.loads(json.dumps(built.judge.config.to_dict()))
        for config in (complete, first_generation(built.config)):
            assert built.spec_of(config) == built.spec

    def test_gguf_twin_agrees(self, built: Built) -> None:
        tokens = built.tokens(max(built.case.lengths))
        assert_agree(run(built.gguf_model, tokens), built.truth(tokens), built.spec, "GGUF")

    def test_the_file_that_we_write_agrees(self, built: Built, tmp_path: Path) -> None:
        tokens = built.tokens(max(built.case.lengths))
        path = tmp_path / "ours.gguf"
        assert built.judge is not None
        if built.case.not_in_gguf:
            with pytest.raises(UnsupportedError, match=built.case.not_in_gguf):
                rewrite(built.folder, path)
            return
        rewrite(built.folder, path)
        model = load_model(open_checkpoint(path), ReferenceOps(), context=built.case.context)
        assert_agree(run(model, tokens), built.truth(tokens), built.spec, "our GGUF")


class Built:
    """One case with its models, each made once."""

    def __init__(self, case: Case, folder: Path) -> None:
        self.case = case
        self.folder = folder
        self._truths: dict[int, Float32] = {}

    @cached_property
    def judge(self) -> Any:
        """Transformers' model, saved to the folder as it was made."""
        import transformers

        config = getattr(transformers, self.case.config)(**self.case.settings)
        # The plainest kernels, which also do what others leave out (soft caps).
        config._attn_implementation = "eager"
        config._experts_implementation = "eager"
        judge = transformers.AutoModelForCausalLM.from_config(config).eval()
        randomise(judge, self.case.weights, self.case.seed)
        judge.save_pretrained(self.folder)
        return judge

    @cached_property
    def model(self) -> Model:
        assert self.judge is not None
        return load_model(open_checkpoint(self.folder), ReferenceOps(), context=self.case.context)

    @property
    def spec(self) -> ModelSpec:
        return self.model.spec

    @cached_property
    def config(self) -> dict[str, Any]:
        """The config.json that transformers wrote."""
        assert self.judge is not None
        config: dict[str, Any] = json.loads((self.folder / "config.json").read_text())
        return config

    def spec_of(self, config: dict[str, Any]) -> ModelSpec:
        """What we read from another config.json."""
        checkpoint = Checkpoint(self.folder, "safetensors", Metadata(self.folder, config), {}, [])
        return read_spec(checkpoint, self.case.context)[1]

    @cached_property
    def gguf_path(self) -> Path:
        assert self.judge is not None and self.case.gguf is not None
        path = self.folder / "model.gguf"
        write_gguf(self.case.gguf, self.judge.config, self.folder / "model.safetensors", path)
        return path

    @cached_property
    def gguf_model(self) -> Model:
        return load_model(
            open_checkpoint(self.gguf_path), ReferenceOps(), context=self.case.context
        )

    def tokens(self, length: int) -> list[int]:
        rng = np.random.RandomState(length)
        return [int(t) for t in rng.randint(0, self.spec.vocab_size, length)]

    def truth(self, tokens: Sequence[int]) -> Float32:
        """Transformers' logits, [T, vocabulary]."""
        if len(tokens) not in self._truths:
            self._truths[len(tokens)] = ask(self.judge, tokens, stepwise=self.case.stepwise)
        return self._truths[len(tokens)]


def rewrite(folder: Path, path: Path) -> None:
    """The folder's model as a GGUF file of our own, in F32."""
    mix = mix_named("f32")
    with open_checkpoint(folder) as checkpoint:
        source = folder_model(checkpoint)
        write_quantized(source, choose(source, mix, pure=False, requantize=False), mix, path)


def first_generation(config: dict[str, Any]) -> dict[str, Any]:
    """A config.json as transformers wrote it before version 5: `rope_theta`, `rope_scaling`."""
    old = {key: value for key, value in config.items() if key != "rope_parameters"}
    parameters = dict(config.get("rope_parameters") or {})
    if not parameters or any(isinstance(value, dict) for value in parameters.values()):
        return config  # no rotary embedding, or one for each kind of layer
    for key in ("rope_theta", "partial_rotary_factor"):
        if key in parameters:
            old[key] = parameters.pop(key)
    kind = parameters.pop("rope_type")
    old["rope_scaling"] = None if kind == "default" else {"type": kind, **parameters}
    return old


def randomise(judge: Any, spread: float, seed: int) -> None:
    """Weights that let every mistake show: nothing at 0 or 1, attention far from uniform.

    Drawn from NumPy's frozen generator, so that they are the same with every version.
    """
    import torch

    rng = np.random.RandomState(seed)
    with torch.no_grad():
        for name, weight in sorted(judge.named_parameters()):
            noise = torch.from_numpy(rng.standard_normal(tuple(weight.shape)).astype(np.float32))
            if weight.ndim == 1:  # norms start at 1 (or 0, where 1 is added later), biases at 0
                weight.add_(0.3 * noise)
            elif "embed" in name or "wte" in name or "wpe" in name:
                weight.copy_(noise)
            else:
                weight.copy_(spread * noise / weight.shape[-1] ** 0.5)


def ask(judge: Any, tokens: Sequence[int], *, stepwise: bool = False) -> Float32:
    """Logits of transformers' model, [T, vocabulary]."""
    import torch

    ids = torch.tensor([list(tokens)])
    with torch.no_grad():
        if not stepwise:
            return np.asarray(judge(ids, use_cache=False).logits[0].float().numpy())
        past, rows = None, []
        for i in range(len(tokens)):
            answer = judge(ids[:, i : i + 1], past_key_values=past, use_cache=True)
            past = answer.past_key_values
            rows.append(answer.logits[0].float().numpy())
    return np.concatenate(rows)


def run(
    model: Model,
    tokens: Sequence[int],
    *,
    page_size: int = 16,
    cuts: Sequence[int] = (),
    company: bool = False,
) -> Float32:
    """Our logits of every position, [T, vocabulary].

    `cuts` are the positions where the prompt is cut into spans, each run in its own step. With
    `company` another sequence takes part in every step, before ours. Pages are scattered.
    """
    n_pages = -(-len(tokens) // page_size)
    order = np.random.RandomState(len(tokens)).permutation(2 * n_pages)
    ours, others = (tuple(int(p) for p in part) for part in np.split(order, 2))
    cache = model.ops.new_cache(model.spec, 2 * n_pages, page_size)
    rows = []
    bounds = [0, *cuts, len(tokens)]
    for start, end in pairwise(bounds):
        piece = tuple(tokens[start:end])
        spans = [Span(0, start, piece, ours, n_logits=len(piece))]
        if company:
            reverse = tuple(tokens[::-1][start:end])
            spans.insert(0, Span(1, start, reverse, others))
        plan = Plan(tuple(spans), page_size)
        rows.append(model.ops.to_numpy(model.forward(plan, cache)))
    return np.concatenate(rows)


class Disagreement(AssertionError):  # noqa: N818 - what a test expects of a fault
    """Logits further apart than float32 explains."""


def tolerance(spec: ModelSpec, length: int, logits: Float32) -> float:
    """How far apart two right float32 implementations may be.

    A product over K terms is off by about sqrt(K) units of rounding; such results, a few a
    layer, add up in the residual stream. A rotary angle in float32 is off by a unit for each
    radian, one a position. Errors of scores grow by their size in the softmax.
    """
    longest = max(max(spec.d_model, layer.ffn_dim) for layer in spec.layers)
    roundings = (ROUNDINGS_PER_LAYER * spec.n_layers + 2) * longest**0.5 + length
    return float(UNIT * AMPLIFICATION * roundings * np.abs(logits).max())


def assert_agree(
    ours: Float32, truth: Float32, spec: ModelSpec, what: str, slack: float = 1.0
) -> None:
    """Raises `Disagreement` with the figures when logits differ by more than `tolerance`, or
    `slack` times that where the truth itself is coarser than float32."""
    assert ours.shape == truth.shape
    allowed = slack * tolerance(spec, len(truth), truth)
    off = np.abs(ours - truth)
    worst = float(off.max())
    if np.isfinite(worst) and worst <= allowed:
        return
    position, token = np.unravel_index(int(off.argmax()), off.shape)
    raise Disagreement(
        f"{what}, {len(truth)} tokens: |{ours[position, token]:.7g} - {truth[position, token]:.7g}|"
        f" = {worst:.3g} at position {position}, token {token}; float32 explains {allowed:.3g}"
        f" (d {spec.d_model}, {spec.n_layers} layers, logits up to {np.abs(truth).max():.3g})"
    )


# Faults to plant


def zero_logits(model: Model) -> Model:
    """A model that answers nothing."""

    def leave(ops: Any, spec: ModelSpec, weights: Weights, x: Float32) -> Float32:
        return np.zeros_like(x)

    family = model.family
    zeros = SimpleNamespace(enter=family.enter, decoder_layer=family.decoder_layer, leave=leave)
    return dataclasses.replace(model, family=zeros)  # type: ignore[arg-type]


def wrong_rope_sign(model: Model) -> Model:
    """One sine with the wrong sign."""

    class WrongSign(ReferenceOps):
        def rope(self, x: Float32, positions: Any, head_dim: int, rope: Any) -> Float32:
            right = super().rope(x, positions, head_dim, rope)
            back = super().rope(x, -positions, head_dim, rope)
            shape = (len(x), -1, head_dim)
            y = right.reshape(shape).copy()
            second = slice(rope.dims // 2, rope.dims)
            if rope.style == "interleaved":
                second = slice(1, rope.dims, 2)
            y[..., second] = back.reshape(shape)[..., second]
            return y.reshape(x.shape)

    return dataclasses.replace(model, ops=WrongSign())


def dropped(*names: str) -> Fault:
    """Optional weights (a bias, a norm) left out, by full names such as blk.1.attn_q.bias."""

    def plant(model: Model) -> Model:
        kept = dict(model.weights.items())
        for name in names:
            del kept[name]
        return dataclasses.replace(model, weights=Weights(kept))

    return plant


def changed(name: str, change: Callable[[Float32], Float32]) -> Fault:
    """One weight changed: `changed("blk.0.ffn_norm.bias", np.zeros_like)`."""

    def plant(model: Model) -> Model:
        weights = dict(model.weights.items())
        weights[name] = change(weights[name])
        return dataclasses.replace(model, weights=Weights(weights))

    return plant


def wrong_layer(change: Callable[[LayerSpec], LayerSpec], *indices: int) -> Fault:
    """The specification of some layers changed (all, when no index is given)."""

    def plant(model: Model) -> Model:
        layers = tuple(
            change(layer) if not indices or i in indices else layer
            for i, layer in enumerate(model.spec.layers)
        )
        return wrong_spec(layers=layers)(model)

    return plant


def layer_with(**changes: Any) -> Callable[[LayerSpec], LayerSpec]:
    """For `wrong_layer`: some values of a layer changed."""
    return lambda layer: dataclasses.replace(layer, **changes)


def wrong_spec(**changes: Any) -> Fault:
    """The specification changed: `wrong_spec(norm_eps=1e-5)`."""

    def plant(model: Model) -> Model:
        return dataclasses.replace(model, spec=dataclasses.replace(model.spec, **changes))

    return plant


def window_off_by(step: int) -> Fault:
    """Every sliding window longer or shorter than it is."""

    def shift(layer: LayerSpec) -> LayerSpec:
        window = None if layer.window is None else layer.window + step
        return dataclasses.replace(layer, window=window)

    return wrong_layer(shift)


def without_norm(name: str) -> Fault:
    """Rows pass the norm with weight `name` as they are."""

    def plant(model: Model) -> Model:
        skipped = model.weights[name]

        class Skips(ReferenceOps):
            def rms_norm(self, x: Float32, weight: Float32, eps: float) -> Float32:
                return x if weight is skipped else super().rms_norm(x, weight, eps)

            def layer_norm(
                self, x: Float32, weight: Float32, bias: Float32 | None, eps: float
            ) -> Float32:
                return x if weight is skipped else super().layer_norm(x, weight, bias, eps)

        return dataclasses.replace(model, ops=Skips())

    return plant


def other_gelu(model: Model) -> Model:
    """The error function where tanh should be, and tanh where it should not."""

    class Swapped(ReferenceOps):
        def gelu(self, x: Float32) -> Float32:
            return super().gelu_tanh(x)

        def gelu_tanh(self, x: Float32) -> Float32:
            return super().gelu(x)

    return dataclasses.replace(model, ops=Swapped())
