"""How much memory Arrow has at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

# Kept until the process ends: a thread of Arrow may free a buffer of a pool after its test, and
# crashes the process if the pool is gone.
_POOLS: list[pa.MemoryPool] = []


@contextmanager
def own_pool() -> Iterator[pa.MemoryPool]:
    """A pool for all that Arrow allocates in the block."""
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    _POOLS.append(pool)
    pa.set_memory_pool(pool)
    try:
        yield pool
    finally:
        pa.set_memory_pool(before)
