"""The journal: records in numbered segments, each with a checksum, durable once flushed.

Start reading at `journal.py`, which appends. `reading.py` reads the records, `cutting.py` cuts off
damaged bytes, `segment.py` is the format of one file, `stretches.py` the parts of a segment in
storage, and `head.py` the object that names everything that is published.
"""
