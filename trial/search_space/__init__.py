"""Turns a search space, as users write it, into configs.

`variants.py` compiles a space and draws from it, `spaces.py` knows the spaces that a restore has
replaced, and `parameters.py` describes a space for search libraries.
"""
