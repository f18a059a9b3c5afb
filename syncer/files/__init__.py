"""Files on a disk: writes that survive a power cut, and deadlines for a disk that does not answer.

Start reading at `durable.py`. From the rest of the syncer it imports only the errors.
"""
