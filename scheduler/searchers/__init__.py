"""Searchers, which suggest the next config, and wrappers around them.

`searcher.py` is the interface, with random and grid search. To add one, subclass `Searcher`
(docs/search.md).
"""
