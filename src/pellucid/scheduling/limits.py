"""Limits: what a step and the cache can hold."""

from __future__ import annotations

from dataclasses import dataclass

from pellucid.core.errors import BadInput

POLICIES = ("continuous", "static")


@dataclass(frozen=True, slots=True)
class Limits:
    """max_model_len: positions of one sequence, prompt and answer together. max_num_seqs:
    sequences that run at once. max_num_batched_tokens: positions computed in one step.
    n_pages, page_size: the KV pool. kv_cache False keeps nothing between steps. prefix_caching:
    whether full pages are kept and shared by content. policy: see `pellucid.scheduling.policy`.

    Raises `BadInput` naming a limit that is out of range or contradicts another.
    """

    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    n_pages: int
    page_size: int
    kv_cache: bool = True
    prefix_caching: bool = False
    policy: str = "continuous"

    def __post_init__(self) -> None:
        for name in (
            "max_model_len",
            "max_num_seqs",
            "max_num_batched_tokens",
            "n_pages",
            "page_size",
        ):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise BadInput(f"{name} must be a whole number from 1, not {value!r}")
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise BadInput(
                f"max_num_batched_tokens {self.max_num_batched_tokens} is below max_num_seqs "
                f"{self.max_num_seqs}: a step must have room for one token of each sequence"
            )
        if self.policy not in POLICIES:
            raise BadInput(f"policy must be one of {', '.join(POLICIES)}, not {self.policy!r}")
