"""What a trial wrote besides checkpoints, in storage as it is here.

`plan.py` decides (pure), `scan.py` looks, `mirror.py` uploads and deletes, `restore_artifacts.py`
brings files back before a trial resumes on another machine.
"""
