"""Turns a search space, as users write it, into configs.

`compiler.py` makes a template of a space, `variants.py` draws from it, and `parameters.py`
describes a space for search libraries.
"""
