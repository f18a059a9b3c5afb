"""Storage: makes files durable on a disk and in a bucket, and reads them back.

It knows neither the meaning of trials nor the processes that train. The folders are layers; each
may import those after it:

* `uploader`: the process that uploads behind every report
* `artifacts`: files that trials write
* `checkpoint`: directories with a manifest
* `journal`: the append-only log
* `stores`: S3, pyarrow and fsspec filesystems, a disk
* `files`: durable writes

`errors.py` has the errors of all of them.
"""
