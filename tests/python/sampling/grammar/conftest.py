from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from pellucid.sampling.grammar import GrammarCompiler
from pellucid.text import Tokenizer
from tests.python.text.vocabularies import kind_tokenizer


@pytest.fixture(scope="package")
def tokenizer() -> Tokenizer:
    """Byte-level, with merges and control tokens."""
    return kind_tokenizer("gpt-2")


@pytest.fixture(scope="package")
def compiler(tokenizer: Tokenizer) -> Iterator[GrammarCompiler]:
    compiler = GrammarCompiler(tokenizer, np.ones(tokenizer.vocab_size, np.bool_))
    yield compiler
    compiler.close()
