"""The warm parent: it imports the user's modules once, in one thread, and forks the workers.

Start reading at `parent.py`; `client.py` is the controller's side. `succession.py` forks a
successor that also imports the modules that the first trial imported (`preloading.py`).
"""
