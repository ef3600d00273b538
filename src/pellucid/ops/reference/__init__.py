"""The reference backend: NumPy, float32, exactly dequantised weights, no cleverness.

It defines what is right. Two choices make a row's bits independent of its batch: matrix
products run in tiles of a fixed number of rows, and attention is computed one row at a time.
"""

from pellucid.ops.reference.backend import ReferenceOps

__all__ = ["ReferenceOps"]
