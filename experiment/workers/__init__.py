"""Runs in the controller: decides which worker process runs which attempt, until it exits.

The code inside a worker process is `holdfast.experiment.worker`. Start reading at `pool.py`;
`actor.py` is one worker, `group.py` several that train one trial. `start_checkpoints.py` finds the
checkpoint that an attempt resumes from. `claims.py` checks every message of a worker. Processes
and sockets are in `holdfast.runtime`.
"""
