"""How fast a model runs on this machine, and how far that is from what the machine can do.

`run_bench` measures cases (prefill, decode, batches, contexts) on the model's forward pass with a
real paged cache, and decode through the whole engine; beside every repeat it measures the
machine's peaks, since a machine's speed wanders.
"""

from pellucid.bench.report import Report, report_json
from pellucid.bench.run import Settings, run_bench

__all__ = ["Report", "Settings", "report_json", "run_bench"]
