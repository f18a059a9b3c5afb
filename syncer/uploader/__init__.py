"""The uploader: hashes, fsyncs, uploads and deletes, in a process of its own.

`uploader.py` performs orders, `process.py` receives them, `publication.py` makes a consistent set
visible in storage. `lock.py` keeps a second run out of the folder.
"""
