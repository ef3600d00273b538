"""Attention with linear biases (ALiBi, Press et al. 2022)."""

from __future__ import annotations


def slopes(n_heads: int, max_bias: float = 8.0) -> tuple[float, ...]:
    """Each head's penalty for a token of distance.

    For a power of two of heads the geometric sequence from 2^(-max_bias / n) down to
    2^(-max_bias). Other numbers take the sequence of the power of two below, then every other
    slope of the one above, from the start.
    """
    below = 1 << (n_heads.bit_length() - 1)
    exponents = [h / below for h in range(1, below + 1)]
    exponents += [h / (2 * below) for h in range(1, 2 * (n_heads - below), 2)]
    return tuple(2.0 ** (-max_bias * exponent) for exponent in exponents)
