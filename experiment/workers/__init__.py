"""The controller's side of the worker processes: which worker runs which attempt, until it exits.

Start reading at `pool.py`; `actor.py` is one worker, `group.py` several that train one trial.
`start_checkpoints.py` finds what an attempt begins from. `claims.py` checks every message of a
worker. Processes and sockets are in `holdfast.runtime`.
"""
