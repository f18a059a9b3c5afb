"""The code inside a worker's process: it runs the user's function or class.

Start reading at `host.py`, which runs an attempt; `session.py` implements `report()` and
`get_checkpoint()`. It imports nothing of the controller: the two share the messages in `job.py`.
"""
