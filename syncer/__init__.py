"""Storage: what becomes durable on a disk and in a bucket, and what comes back from there.

Knows nothing of trials' meaning or of processes that train. The folders are layers: each may
import those after it. `uploader` the process that uploads behind every report; `artifacts` what
users write; `checkpoint` directories with a manifest; `journal` the append-only log; `stores` S3,
pyarrow and fsspec filesystems, a disk; `files` durable writes. `errors.py` has what can go wrong.
"""
