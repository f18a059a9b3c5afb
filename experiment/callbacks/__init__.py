"""Users' callbacks: the hook for each change of a trial, and the thread that calls it.

Start reading at `callback.py`, then `thread.py`.
"""
