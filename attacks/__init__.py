"""Hostile model files, made anew wherever they are needed; see README.md."""
