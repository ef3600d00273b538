"""Block layouts of quantised tensors and their exact dequantisation in NumPy."""
