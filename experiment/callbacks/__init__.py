"""Users' callbacks: which hook a change of a trial means, and the thread that calls it.

Start reading at `callback.py`, then `thread.py`.
"""
