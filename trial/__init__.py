"""One trial: what it was asked to be, what happens to it, and how it moves.

Start reading at `lifecycle.py`, a table of (status, event), then `trial.py` and `events.py`.
Users' settings (`config.py`, `tuning.py`, `scaling.py`) are checked here. `space.py` has the words
of a search space (`uniform`, `choice`, ...). Imports nothing of the other rooms, and is pure.
"""
