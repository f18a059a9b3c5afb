"""Writes files from the journal: result.json, progress.csv, event files, snapshots.

The projector is a separate process. If it is slow or dies, nothing is lost, because the journal
has everything. Start reading at `projector.py`; `trial_files.py` has the files of one trial, and
the change for each event.
"""
