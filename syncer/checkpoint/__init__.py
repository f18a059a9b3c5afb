"""Checkpoints: directories that are complete, with a manifest that is written last, or absent.

`staging.py` takes the user's directory, `manifest.py` describes its files, `upload.py` and
`download.py` move it, `reading.py` keeps readers and removals apart, and `checkpoint.py` is the
class that users get.
"""
