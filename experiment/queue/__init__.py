"""The queue: commands that run one after another or side by side, from plain files.

Start reading at `runner.py`. `queue_folder.py` says what a job is and which state follows from its
file and lock, and keeps the files; `guard.py` is the process that a job runs under; and
`job_experiments.py` lets a script that starts again continue the experiments that it has begun.
"""
