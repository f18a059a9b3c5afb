"""The journal: records in numbered segments, each with a checksum, durable once fsynced.

Start reading at `journal.py`. `segment.py` is the format of one file, `stretches.py` what lies of
it in storage, `head.py` the object that names all that is published.
"""
