"""The controller's side of the worker processes: who hosts which attempt, from launch to exit.

Start reading at `pool.py`; `actor.py` is one worker, `group.py` several that train one trial.
`claims.py` checks what a worker says before anything believes it. Knows `holdfast.runtime` for
processes and sockets.
"""
