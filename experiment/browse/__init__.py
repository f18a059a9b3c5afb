"""Experiments looked at from outside: running or not, here or in storage, without their code.

`catalog.py` is `holdfast ls`, `overview.py` `show`, `logs.py` and `following.py` `logs`. Start
reading at `found.py`, which finds what the user named.
"""
