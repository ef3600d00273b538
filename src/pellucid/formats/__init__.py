"""Model files, memory-mapped: GGUF and safetensors."""
