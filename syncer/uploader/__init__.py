"""Runs in the uploader, a separate process that hashes, fsyncs, uploads and deletes files.

The controller, which sends it orders, does so in `holdfast.experiment.uploads`. `uploader.py`
performs orders, `process.py` receives them, and `publication.py` makes a consistent set of files
visible in storage; `holdfast.syncer.checkpoint.upload` sends one checkpoint. `node_keeper.py` runs
in the same kind of process on a node, and `keeper.py` is what both do. `lock.py` keeps a second
run out of the folder.
"""
