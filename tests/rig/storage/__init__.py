"""Storage servers on loopback, a proxy before them, stores in memory, and buckets from outside."""
