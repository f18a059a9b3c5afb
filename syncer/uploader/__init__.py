"""Runs in the uploader, a separate process that hashes, fsyncs, uploads and deletes files.

The controller, which sends it orders, does so in `holdfast.experiment.uploads`. `messages.py` has
the orders and answers, `process.py` receives orders, `uploader.py` performs them, on a node as at
the controller, and `publication.py` makes a consistent set of files visible in storage. `lock.py`
keeps a second run out of the folder.
"""
