"""The ready-made trial schedulers, one per paper."""
