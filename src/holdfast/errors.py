"""The base of what holdfast raises, below every room."""

from __future__ import annotations


class TuneError(Exception):
    """Base of every error that holdfast raises to its user."""
