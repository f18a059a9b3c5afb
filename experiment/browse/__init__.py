"""Reads experiments from outside: running or not, here or in storage, without their code.

`catalog.py` is `holdfast ls`, `overview.py` is `show` and `nodes`, `logs.py` follows a trial's
output, `removal.py` is `rm`. Start reading at `locate.py`, which finds the experiment that the
user named.
"""
