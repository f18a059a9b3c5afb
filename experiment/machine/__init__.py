"""What experiments in several processes of one user know of each other on one machine.

Start reading at `machine_share.py`; `fair_share.py` decides who takes what next, and
`members.py` is the folder of files and locks that they share.
"""
