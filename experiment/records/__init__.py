"""The records of an experiment: the journal, snapshots, and the machine that they give.

Start reading at `opened.py`, the one way into an experiment; `journal_writer.py`, where a report
becomes durable; and `recovery.py`, which folds the records and checks the files on the disk.
"""
