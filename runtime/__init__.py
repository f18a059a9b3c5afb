"""Processes and sockets: where workers come from, how they are spoken to and how they end.

Knows nothing of trials. Start reading at `launcher.py` (the seam, and the launcher of this
machine), then `worker.py` (a worker's process) and `connection.py`. `warm/` forks workers from a
process that has imported the user's modules; `service.py` runs what works behind the controller.
"""
