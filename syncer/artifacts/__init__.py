"""Copies the artifacts of trials to storage, and back before a trial resumes on another machine.

`settings.py` decides, `scan.py` finds and reads files, `stored_index.py` knows what is in storage,
and `mirror.py` uploads, deletes and downloads.
"""
