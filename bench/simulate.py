"""How fast the simulator steps: scheduler steps a minute of one core.

    python bench/simulate.py [--requests 400] [--json]

A model of 8 billion parameters on an H100 by its roofline, and the same by a fitted sum of terms
with an uneven pace, at a light load, near saturation and over it; prompts of 500 tokens, answers of
100, prefix caching on. Seconds are of this thread's processor time: what else runs on the machine
does not count.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace

from pellucid.core.spec import LayerSpec, ModelSpec
from pellucid.costs import WeightSize
from pellucid.costs.hardware import find_hardware
from pellucid.costs.roofline import Priced
from pellucid.scheduling import Limits
from pellucid.simulate.answers import Question
from pellucid.simulate.enough import served
from pellucid.simulate.lengths import Lognormal
from pellucid.simulate.pace import Pace
from pellucid.simulate.run import run
from pellucid.simulate.setup import Setup
from pellucid.simulate.sweep import Sweep
from pellucid.simulate.times import TERMS, Fitted, Roofline, StepTime
from pellucid.simulate.traffic import Made

WANTED = 100_000  # steps a minute
UNEVEN = Pace.of((0.02 + 0.004 * (i % 7), 0.02) for i in range(1000))
LOADS = {"light": 0.2, "near saturation": 0.9, "over saturation": 1.2}


def llama_8b() -> Priced:
    """Sizes of the kind of Llama 3.1 8B, in 16 bits."""
    layer = LayerSpec(32, 8, 128, 14336, 128**-0.5)
    spec = ModelSpec("llama", 4096, 128256, 131072, 1e-5, (layer,) * 32)
    shapes = {"token_embd.weight": (128256, 4096), "output.weight": (128256, 4096)}
    for i in range(32):
        shapes |= {
            f"blk.{i}.attn_q.weight": (4096, 4096),
            f"blk.{i}.attn_k.weight": (1024, 4096),
            f"blk.{i}.attn_v.weight": (1024, 4096),
            f"blk.{i}.attn_output.weight": (4096, 4096),
            f"blk.{i}.ffn_gate.weight": (14336, 4096),
            f"blk.{i}.ffn_up.weight": (14336, 4096),
            f"blk.{i}.ffn_down.weight": (4096, 14336),
        }
    return Priced(spec, {n: WeightSize(s, 2 * s[0] * s[1]) for n, s in shapes.items()}, "f16")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    priced = llama_8b()
    models: dict[str, StepTime] = {
        "roofline": Roofline(priced, find_hardware("h100").limits(16)),
        "fitted": Fitted(priced.spec, (5e-3, *(2e-4,) * (len(TERMS) - 4), 1e-7, 1e-8, 1e-10)),
    }
    found = [one for name, times in models.items() for one in measure(name, times, given.requests)]
    if given.json:
        print(json.dumps(found))
    least = min(one["steps_per_minute"] for one in found)
    print(f"at the least {least:,.0f} steps a minute; {WANTED:,} are wanted")


def measure(name: str, times: StepTime, requests: int) -> list[dict[str, float | str]]:
    limits = Limits(8192, 32, 512, 16384, 16, prefix_caching=True)
    pace = UNEVEN if isinstance(times, Fitted) else Pace()
    setup, traffic = (
        Setup(limits, times, pace=pace),
        Made(1.0, Lognormal(500, 1.0), Lognormal(100, 0.7)),
    )
    with Sweep(1) as sweep:
        crowd = replace(Question(setup, traffic, requests, (0,)).crowd, requests=128)
        most = served(sweep.points([crowd])[0])
    found: list[dict[str, float | str]] = []
    for load, share in LOADS.items():
        began, clock = time.thread_time(), time.perf_counter()
        tally = run(setup, traffic.at_rate(share * most), requests, 1).tally
        seconds, wall = time.thread_time() - began, time.perf_counter() - clock
        rate = 60 * tally.all_steps / seconds
        batch = tally.running / max(tally.steps, 1)
        print(
            f"{name}, {load}: {tally.all_steps} steps of {batch:.1f} sequences in {seconds:.2f} s "
            f"of processor time ({wall:.2f} s passed): {rate:,.0f} a minute"
        )
        found.append({"model": name, "load": load, "batch": batch, "steps_per_minute": rate})
    return found


if __name__ == "__main__":
    main()
