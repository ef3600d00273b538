"""Model files, memory-mapped: GGUF and safetensors."""

from pellucid.formats.checkpoint import Checkpoint, open_checkpoint
from pellucid.formats.metadata import Metadata
from pellucid.formats.tensors import TensorInfo

__all__ = ["Checkpoint", "Metadata", "TensorInfo", "open_checkpoint"]
