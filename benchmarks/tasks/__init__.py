"""Tuning problems whose best value is known: functions, and recorded curves.

Nothing here needs holdfast: a peer's own Python computes the same curves.
"""
