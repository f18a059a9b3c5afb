"""A request becomes an experiment that is ready to run, or an error that says why not.

`fit.py` takes the lock, decides between beginning and resuming, and calls `control.run`. Restores
are requests too (`restore_request.py`); `extension.py` and `resume_checks.py` compare what a
script says with what the experiment is. Knows everything below; no process is started here.
"""
