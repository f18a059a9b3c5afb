"""The journal: records with checksums, in numbered segments.

A record is *written* when `append` has passed it to the kernel: no death of a process loses it. It
is *forced to the disk* when an fsync has confirmed it: no power cut loses it.

Start reading at `journal.py`, which appends. `segment.py` is the format of one file and reads its
records, and `stretches.py` has the parts of a segment in storage and the object that names them.
"""
