"""Pages of the KV cache: who owns which. Bookkeeping only, no arrays."""
