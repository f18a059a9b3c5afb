"""Files on a disk: durable writes, and deadlines for a disk that does not answer.

Start reading at `durable.py`. It imports nothing else of the syncer but its errors.
"""
