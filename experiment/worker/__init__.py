"""What runs in a worker's process: the user's function or class, and what it calls.

Start reading at `host.py`, which runs an attempt; `session.py` is behind `report()` and
`get_checkpoint()`. Imports nothing of the controller: the two share the messages in `job.py`.
"""
