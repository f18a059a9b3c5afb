"""`holdfast doctor`: finds damage in an experiment, here or in storage, and repairs it.

`verify.py` reads and changes nothing; `repair.py` (and gc) and `upload.py` (sync) change files.
Start reading at `findings.py` (what the doctor reports) and `examination.py` (what it checks). The
doctor trusts no file.
"""
