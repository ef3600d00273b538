"""Pages of the KV cache: who owns which. Bookkeeping only, no arrays."""

from pellucid.cache.pool import PagePool
from pellucid.cache.table import PageTable

__all__ = ["PagePool", "PageTable"]
