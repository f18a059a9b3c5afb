"""Writes what is derived from the journal: result.json, progress.csv, event files, snapshots.

A process of its own: it may lag or die, and loses nothing, because the journal has it all. Start
reading at `projector.py`; `trial_files.py` holds the files of one trial.
"""
