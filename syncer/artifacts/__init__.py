"""Copies the artifacts of trials to storage.

`plan.py` decides (pure), `scan.py` lists files, `mirror.py` uploads and deletes, `stored_index.py`
knows what is in storage, and `restore_artifacts.py` downloads files before a trial resumes on
another machine.
"""
