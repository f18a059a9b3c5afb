"""Files on a disk: durable writes, deadlines for a disk that does not answer, and the errors.

Start reading at `durable.py`. Imports nothing else of holdfast's rooms.
"""
