"""One trial: its specification, its events and its statuses.

Start reading at `lifecycle.py`, a table of (status, event), then `trial.py` and `events.py`.
Users' settings (`config.py`, `scaling.py`) are checked here. `space.py` has the domains and
functions of a search space (`uniform`, `choice`, ...). It imports only what all rooms stand on,
such as `holdfast.schema`, and is pure.
"""
