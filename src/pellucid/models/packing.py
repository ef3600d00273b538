"""Quantised safetensors checkpoints: how config.json says that matrices are packed.

GPTQ (Frantar et al. 2022) as AutoGPTQ and GPTQModel write it, AWQ (Lin et al. 2023) as AutoAWQ
writes it for its GEMM kernels. What either says is read, known to be harmless, or refused by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pellucid.core.errors import UnsupportedError
from pellucid.formats.checkpoint import Checkpoint
from pellucid.formats.shown import shown
from pellucid.models.fields import Fields

KEY = "quantization_config"
MAX_GROUP = 1 << 20

# How they were found and by which kernels others run them; none changes what a weight is.
_HARMLESS = """
    quant_method damp_percent damp_auto_increment static_groups true_sequential meta dataset
    tokenizer batch_size block_name_to_quantize module_name_preceding_first_block model_seqlen
    use_cuda_fp16 use_exllama disable_exllama exllama_config max_input_length cache_block_outputs
    pad_token_id backend mse desc_act sym lm_head modules_in_block_to_quantize
    modules_to_not_convert model_name_or_path model_file_base_name act_group_aware fuse_max_seq_len
    do_fuse modules_to_fuse
""".split()


@dataclass(frozen=True, slots=True)
class Packing:
    """`bits` of a number; each `group` of inputs shares a scale and a zero (None: all inputs do).

    `zero_shift` is added to the zeros as stored, modulo 2^bits: 1 in the first GPTQ format. `rows`:
    numbers of one word follow each other along the inputs (GPTQ), else along the outputs, those of
    AWQ's words in an `order` of their own.
    """

    method: str
    bits: int
    group: int | None
    zero_shift: int = 0
    rows: bool = True
    order: tuple[int, ...] | None = None

    @property
    def per_word(self) -> int:
        """Numbers in a word of 32 bits."""
        return 32 // self.bits


# Which output's number each four bits of an AWQ word hold, lowest first.
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


def read_packing(config: Fields) -> Packing | None:
    """What a configuration says of it; None for weights that are not packed.

    Raises `UnsupportedError` for another method, and for bits or a form that is not read here.
    """
    for key in ("quantization", "compression_config"):
        if key in config:
            raise _unsupported(config, key)
    if KEY not in config:
        return None
    fields = config.section(KEY)
    method = str(fields.text("quant_method", "")).lower()
    if method not in ("gptq", "awq"):
        raise _unsupported(config, f"{KEY}: quant_method {shown(method)}")
    fields.harmless(_HARMLESS)
    packing = _gptq(fields) if method == "gptq" else _awq(fields)
    fields.finish()
    return packing


def packing_of(checkpoint: Checkpoint) -> Packing | None:
    """The same, of a whole checkpoint."""
    if checkpoint.kind == "gguf":
        return None
    return read_packing(Fields(checkpoint.metadata, checkpoint.path))


def _unsupported(config: Fields, what: str) -> UnsupportedError:
    return UnsupportedError(
        f"{config.path}: {what}: such quantised safetensors are not implemented, only GPTQ and AWQ "
        "are; use the model's GGUF file or its unquantised weights"
    )


def _gptq(fields: Fields) -> Packing:
    form = fields.either("checkpoint_format", "format")
    fields.only(form, "gptq", "gptq_v2")
    fields.only("is_marlin_format", False)
    fields.only("pack_dtype", "int32")
    for key in ("dynamic", "adapter", "rotation"):
        fields.only(key, {})
    fields.only("bits", 4, 8)
    shift = 0 if fields.raw(form) == "gptq_v2" else 1
    return Packing("gptq", fields.whole("bits"), _group(fields, "group_size"), shift)


def _awq(fields: Fields) -> Packing:
    """Both spellings: AutoAWQ's own quant_config.json and what transformers writes."""
    bits = fields.either("bits", "w_bit")
    fields.only(bits, 4)
    fields.only("zero_point", True)
    for key in ("version", "format"):
        fields.only(key, "gemm", "GEMM")
    group = _group(fields, fields.either("group_size", "q_group_size"))
    return Packing("awq", 4, group, rows=False, order=AWQ_ORDER)


def _group(fields: Fields, key: str) -> int | None:
    given: Any = fields.raw(key)
    if given == -1 and not isinstance(given, bool):
        return None
    return fields.whole(key, 128, high=MAX_GROUP)
