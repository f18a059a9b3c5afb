"""Runs inside each worker process: calls the user's function or class and sends its reports.

The controller's side of the same processes is `holdfast.experiment.workers`. This package imports
nothing of it: the two share the messages in `job.py`. Start reading at `host.py`, which runs an
attempt; `session.py` implements `report()` and `get_checkpoint()`, `rank_session.py` the same for
a rank of several; `script.py` makes the process look like the user's script.
"""
