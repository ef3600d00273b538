"""The sampling stages once more, slowly, in plain Python."""

from __future__ import annotations

import math

from pellucid.core.params import SamplingParams

INF = math.inf


def pick(
    logits: list[float],
    params: SamplingParams,
    u: float,
    prompt: list[int],
    output: list[int],
    banned: set[int],
) -> int:
    """The token chosen from `logits` with the uniform number `u`."""
    scores = [-INF if i in banned else score for i, score in enumerate(logits)]
    scores = bias(scores, dict(params.logit_bias))
    scores = penalise(scores, params, prompt, output)
    best = max(range(len(scores)), key=lambda i: (scores[i], -i))
    if params.temperature == 0.0:
        return best
    scores = [(score - scores[best]) / params.temperature for score in scores]
    kept = keep(scores, params.min_p, params.top_k, params.top_p)
    return draw(scores, kept, u)


def bias(scores: list[float], biases: dict[int, float]) -> list[float]:
    forced = [i for i, value in biases.items() if value == 100.0]
    result = []
    for i, score in enumerate(scores):
        if biases.get(i) == -100.0 or (forced and i not in forced):
            result.append(-INF)
        else:
            result.append(score + biases.get(i, 0.0))
    return result


def penalise(
    scores: list[float], params: SamplingParams, prompt: list[int], output: list[int]
) -> list[float]:
    result = list(scores)
    for i in range(len(result)):
        if i in prompt or i in output:
            if result[i] > 0:
                result[i] /= params.repetition_penalty
            else:
                result[i] *= params.repetition_penalty
        result[i] -= params.frequency_penalty * output.count(i)
        if i in output:
            result[i] -= params.presence_penalty
    return result


def keep(scores: list[float], min_p: float, top_k: int, top_p: float) -> list[int]:
    ranked = sorted(range(len(scores)), key=lambda i: (-scores[i], i))
    ranked = [i for i in ranked if scores[i] > -INF and math.exp(scores[i]) >= min_p]
    if top_k > 0:
        ranked = ranked[:top_k]
    if top_p < 1.0:
        total = sum(math.exp(scores[i]) for i in ranked)
        mass, nucleus = 0.0, []
        for i in ranked:
            nucleus.append(i)
            mass += math.exp(scores[i])
            if mass >= top_p * total:
                break
        ranked = nucleus
    return sorted(ranked)


def draw(scores: list[float], kept: list[int], u: float) -> int:
    weights = [math.exp(scores[i]) for i in kept]
    mass, total = 0.0, sum(weights)
    for i, weight in zip(kept, weights, strict=True):
        mass += weight
        if mass > u * total:
            return i
    return max(i for i, weight in zip(kept, weights, strict=True) if weight > 0)
