"""The ready-made trial schedulers, a paper each."""
