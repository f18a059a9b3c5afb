"""The experiment as records: journal, snapshots, and the machine that is folded from them.

`journal_writer.py` is where a report becomes durable; `recovery.py` folds an experiment again and
looks at what is really on the disk. Start reading at these two.
"""
