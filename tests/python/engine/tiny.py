"""A tiny random Llama in a real GGUF file, with a byte-level tokenizer and a chat template."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

from pellucid.text.bytelevel import encode_bytes

D, FFN, LAYERS, HEADS, KV_HEADS, CONTEXT = 32, 48, 2, 4, 2, 96
START, END, OTHER_END = 258, 259, 260
N_TOKENS = 261  # 256 bytes, two merges, three control tokens
N_ROWS = 264  # the table is padded, as published models' are
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write_model(
    path: Path,
    seed: int = 0,
    template: str | None = TEMPLATE,
    layers: int = LAYERS,
    token_of_a: str = "a",
    n_rows: int = N_ROWS,
    **settings: float,
) -> Path:
    """`settings` are metadata, with __ for the dots of a key; rows from N_TOKENS on are padding."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(D)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    _add_tokenizer(writer, token_of_a, n_rows)
    for name, tensor in _tensors(seed, layers, n_rows).items():
        writer.add_tensor(name, tensor)
    if template is not None:
        writer.add_chat_template(template)
    for key, value in settings.items():
        writer.add_float32(key.replace("__", "."), value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_tokenizer(writer: gguf.GGUFWriter, token_of_a: str, n_rows: int) -> None:
    tokens = [encode_bytes(bytes([i])) for i in range(256)]
    tokens[ord("a")] = token_of_a
    tokens += [encode_bytes(b" t"), "he", "<|im_start|>", "<|im_end|>", "<|endoftext|>"]
    tokens += [f"[PAD{i}]" for i in range(N_TOKENS, n_rows)]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    kinds = [1] * 258 + [3] * 3 + [5] * (n_rows - N_TOKENS)
    writer.add_token_types(kinds)
    writer.add_token_merges([f"{encode_bytes(b' ')} t", "h e"])
    writer.add_eos_token_id(END)


def _tensors(seed: int, layers: int, n_rows: int) -> dict[str, np.ndarray]:
    """Weights large enough that attention is far from uniform and answers vary."""
    rng = np.random.default_rng(seed)
    head_dim = D // HEADS

    def matrix(rows: int, columns: int, gain: float = 1.5) -> np.ndarray:
        return (rng.standard_normal((rows, columns)) * gain / columns**0.5).astype(np.float32)

    def norm() -> np.ndarray:
        return rng.uniform(0.5, 1.5, D).astype(np.float32)

    tensors = {"token_embd.weight": matrix(n_rows, D, 4.0), "output_norm.weight": norm()}
    tensors["output.weight"] = matrix(n_rows, D, 2.0)
    for i in range(layers):
        layer = {
            "attn_norm": norm(),
            "attn_q": matrix(D, D),
            "attn_k": matrix(KV_HEADS * head_dim, D),
            "attn_v": matrix(KV_HEADS * head_dim, D),
            "attn_output": matrix(D, D),
            "ffn_norm": norm(),
            "ffn_gate": matrix(FFN, D),
            "ffn_up": matrix(FFN, D),
            "ffn_down": matrix(D, FFN),
        }
        tensors |= {f"blk.{i}.{name}.weight": tensor for name, tensor in layer.items()}
    return tensors
