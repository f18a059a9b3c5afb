"""Checkpoints: a directory that is whole, with a manifest that is written last, or absent.

`staging.py` takes the user's directory, `manifest.py` says what it consists of, `upload.py` and
`download.py` move it, `checkpoint.py` is what users hold. Readers of a remote checkpoint share one
local copy (`shared_copy.py`).
"""
