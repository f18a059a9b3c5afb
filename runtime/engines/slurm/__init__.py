"""Nodes of Slurm: one job each from a login node, or the nodes of the script's own allocation.

`commands.py` makes the command lines and reads the answers, and `jobs.py` keeps what is known of
each job: both pure. `login.py` performs, through `client.py`.
"""
