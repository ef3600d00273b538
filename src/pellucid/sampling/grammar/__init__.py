"""Grammars: answers whose form is given, by JSON schema, regex, choice or Lark grammar.

1. `GrammarCompiler.compile` checks what was asked, tries it in a process that can be killed, and
   compiles it here, once for equal requests.
2. `Grammar.start` gives each answer a `Matcher` of its own.
3. `Matcher.mask` says which tokens may come next, as bits; `accept` takes the one that did, and
   the next mask is computed in the background while the model's step runs. Most answers do
   without: `FreeChoice`.

llguidance does the parsing (Earley over lazily built automata, and a trie of the vocabulary). It
is imported by the first request that needs it.
"""

from pellucid.sampling.grammar.compiler import GrammarCompiler
from pellucid.sampling.grammar.free_choice import FreeChoice
from pellucid.sampling.grammar.limits import GrammarLimits
from pellucid.sampling.grammar.matcher import Grammar, Matcher

__all__ = ["FreeChoice", "Grammar", "GrammarCompiler", "GrammarLimits", "Matcher"]
