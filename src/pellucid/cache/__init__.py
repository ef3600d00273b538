"""Pages of the KV cache: who owns which, and what the full ones hold. Bookkeeping only, no
arrays."""

from pellucid.cache.pool import PagePool
from pellucid.cache.prefix import Digest, PrefixCache

__all__ = ["Digest", "PagePool", "PrefixCache"]
