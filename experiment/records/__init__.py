"""The experiment as records: journal, snapshots, and the machine that is folded from them.

Start reading at `opened.py`, the one way into an experiment; `journal_writer.py`, where a report
becomes durable; and `recovery.py`, which folds the records and checks the files on the disk.
"""
