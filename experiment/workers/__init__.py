"""Runs in the controller: decides which worker process runs which attempt, until it exits.

The code inside a worker process is `holdfast.experiment.worker`. Start reading at `pool.py`, which
also shares CPUs and GPUs with other runs of this process; `actor.py` is one worker, `group.py`
several that train one trial, by the decisions of `ranks.py`. `start_checkpoints.py` gets the
checkpoint that an attempt resumes from. `worker_messages.py` checks every message of a worker.
Processes and sockets are in `holdfast.runtime`.
"""
