"""Searchers: what suggests the next config, and what wraps one that does.

`searcher.py` is the seam, with random and grid search. To add one, subclass `Searcher`
(docs/search.md).
"""
