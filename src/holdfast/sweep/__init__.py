"""Sweep files: what `holdfast run` reads, checks and runs (docs/sweep.md)."""
