"""Nodes of Slurm: one job each from a login node, or the nodes of the script's own allocation.

`terms.py` and `commands.py` make the command lines, `parsing.py` reads the answers, and `jobs.py`
keeps what is known of each job: all pure. `login.py` performs, through `client.py`.
"""
