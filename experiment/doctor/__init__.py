"""`holdfast doctor`: what is wrong with an experiment, here or in storage, and mending it.

`verify.py` looks and changes nothing; `repair.py`, `collect.py` (gc) and `upload.py` (sync) change
files. Start reading at `findings.py` (what it says) and `examination.py` (what it looks at). It
takes nothing that stands in a file for granted.
"""
