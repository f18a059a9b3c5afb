"""Runs in the controller: decides which worker process runs which attempt, until it exits.

The code inside a worker process is `holdfast.experiment.worker`. Start reading at `pool.py`;
`actor.py` is one worker, `group.py` several that train one trial. `preparation.py` gets the
checkpoint that an attempt resumes from, which `start_checkpoints.py` and, on nodes,
`node_checkpoints.py` find. `run_resources.py` shares CPUs and GPUs with other runs of this
process. `claims.py` checks every message of a worker. Processes and sockets are in
`holdfast.runtime`.
"""
