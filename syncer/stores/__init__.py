"""The seam to storage: put, get, list and delete of objects below one place.

`store.py` is the protocol, and `location.py` turns what users name into a place and opens its
store. CONTRIBUTING.md says how to add one. `owned_store.py` refuses writes of a run that another
one has replaced.
"""
