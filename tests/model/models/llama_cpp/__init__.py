"""llama.cpp as a judge of the GGUF forms."""
