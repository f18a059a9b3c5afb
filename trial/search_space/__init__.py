"""From a search space, as users write it, to configs.

`compiler.py` makes a template of a space, `variants.py` draws from that, and `parameters.py` is a
space as search libraries know one.
"""
