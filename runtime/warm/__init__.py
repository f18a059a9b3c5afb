"""The warm parent: it imports the user's modules once, in one thread, and forks the workers.

Start reading at `parent.py`; `client.py` is the controller's side. `succession.py` has successors,
which also import the modules that the first trials imported (`preloading.py`). `sampling.py` asks
what workers use, and `memory_groups.py` limits their memory.
"""
