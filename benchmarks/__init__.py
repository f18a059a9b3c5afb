"""Measures holdfast, next to what the machine itself can do."""
