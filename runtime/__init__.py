"""Processes and sockets: starts workers, talks to them and ends them.

It knows no trials. Start reading at `launcher.py` (the interface) and `local_launcher.py` (the
launcher of this machine), then `worker.py` (a worker's process) and `connection.py`. `warm/` forks
workers from a process that has imported the user's modules; `fleet/` runs them on other nodes,
which `engines/` supplies; `service.py` runs the processes behind the controller. `tasks.py` is the
task group that owns every task of a run. `objects.py` has the objects that processes share.
"""
