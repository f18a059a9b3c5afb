"""Reads experiments from outside: running or not, here or in storage, without their code.

`catalog.py` is `holdfast ls`, `node_list.py` is `nodes`, `overview.py` is `show`, `logs.py` and
`following.py` are `logs`. Start reading at `locate.py`, which finds the experiment that the user
named.
"""
