"""The way from a report to the uploader, and back: checkpoints, artifacts and records.

Start reading at `uploads.py`, the controller's side of the uploader process
(`holdfast.syncer.uploader`). `publishing.py` decides when storage gets the journal.
"""
