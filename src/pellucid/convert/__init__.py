"""From one model file to another: quantised GGUF from GGUF files and safetensors folders."""
