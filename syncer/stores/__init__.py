"""The seam to storage: put, get, list and delete of objects below one place.

`store.py` is the protocol, and `location.py` turns what users name into a place. To add a store,
write a class like that in `local.py`, return it in `resolve.py`, and add it to
tests/syncer/stores/test_store_contract.py. `owned_store.py` refuses writes of a run that another
one has replaced.
"""
