"""From a row of logits to a token, in this order:

1. log-probabilities, if asked for, of the model's own distribution: log-softmax of the raw row
2. mask: ids that are no token; what the grammar does not allow; end tokens until `min_tokens` are
   out
3. logit bias; its two ends are exact: -100 bans a token, 100 leaves only the tokens that have it
4. penalties: repetition (tokens of prompt and answer), frequency and presence (of the answer)
5. temperature; 0 takes the largest score here, and nothing below applies
6. min-p, then top-k, then top-p of what is left
7. the draw

Tokens are ranked by score, equal scores by id, lower first: this settles every tie, in greedy
choice, at the borders of top-k and top-p, and in the ranks of log-probabilities. The draw inverts
the cumulative distribution of the tokens left, in the order of their ids; its uniform number is
a function of (seed, position) alone. Where a grammar's mask is looked at only after the choice
(`Draw.form`), what it refuses is drawn again, by another number of (seed, position).

The order is vLLM's. A row is worked on by itself in float64, so neighbours cannot matter.
"""

from pellucid.sampling.history import History
from pellucid.sampling.random import sample_seed, uniform
from pellucid.sampling.sampler import Distribution, Draw, Sampler, invert, may_be_checked_after

__all__ = [
    "Distribution",
    "Draw",
    "History",
    "Sampler",
    "invert",
    "may_be_checked_after",
    "sample_seed",
    "uniform",
]
