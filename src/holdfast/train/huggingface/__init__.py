"""Hugging Face libraries in a trainer."""
