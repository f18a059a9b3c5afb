"""Storage: keeps files safely on a disk and in a bucket, and reads them back.

It knows trials by name only, and no process that trains one. The folders are layers; each may
import those after it:

* `uploader`: the process that uploads behind every report
* `artifacts`: files that trials write
* `checkpoint`: directories with a manifest
* `journal`: the append-only log
* `stores`: S3, pyarrow and fsspec filesystems, a disk
* `files`: writes that survive a power cut

`errors.py` has the errors of all of them.
"""
