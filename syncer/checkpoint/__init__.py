"""Checkpoints: directories that are complete, with a manifest that is written last, or absent.

`staging.py` takes the user's directory, `manifest.py` describes its files, `upload.py` and
`download.py` move it (`share.py` a node's part of it), and `checkpoint.py` is the class that users
get. Readers of a remote checkpoint share one local copy (`shared_copy.py`).
"""
