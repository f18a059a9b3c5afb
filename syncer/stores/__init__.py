"""The interface to storage: put, get, list and delete objects below one path.

`store.py` is the protocol. `location.py` resolves the place that users name and opens its store.
docs/adding.md describes how to add one. `owned_store.py` refuses the writes of a run that another
one has replaced.
"""
