"""What experiments in several processes of one user know of each other on one machine.

Start reading at `machine_share.py`, which has their folder of files and locks; `fair_share.py`
decides who takes what next.
"""
