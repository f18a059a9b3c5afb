"""The uploader, a separate process that hashes, fsyncs, uploads and deletes.

`uploader.py` performs orders, `process.py` receives them, and `publication.py` makes a consistent
set of files visible in storage. `lock.py` keeps a second run out of the folder.
"""
