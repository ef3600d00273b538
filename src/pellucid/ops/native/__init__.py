"""The native backend: a model's operations are recorded once and replayed in C++ for every step.

    forward --graph--> nodes --early_rows, lower--> --fuse--> --schedule--> stages --emit--> Program

`backend` offers the vocabulary; its arrays are nodes of a graph. `lower` says what the kernels need
(quantised inputs, keys stored), `fuse` joins neighbours, `schedule` cuts the list into stages and
decides which values share memory, `emit` writes it all into a `_native.program.Program`. Adding a
model family touches none of this.
"""

from pellucid.ops.native.backend import NativeOps

__all__ = ["NativeOps"]
