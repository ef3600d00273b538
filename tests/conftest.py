"""For every test: one thread per worker, no deadlines, Ctrl-C is heard."""

from __future__ import annotations

import os
import signal

# A shell that runs the tests in the background lets them ignore Ctrl-C, which some tests send.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Before NumPy or torch is imported: the workers of a parallel run share few cores.
for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")
# The `tokenizers` library would warn of the forks that some tests make.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import hypothesis  # noqa: E402 - after the environment is set

# No deadlines: a shared machine may stall any example for a second.
hypothesis.settings.register_profile("pellucid", deadline=None, print_blob=True)
hypothesis.settings.load_profile("pellucid")
