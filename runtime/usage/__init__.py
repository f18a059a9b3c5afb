"""What workers use of their machine: CPU, memory and GPUs.

The kernel counts a worker's CPU time and largest memory, and the warm parent reads both when it
reaps the worker (`used.py:Spent`). While workers run, a process of its own samples them
(`sampler.py`): reading the memory of a large process, or a GPU's driver, can take long or hang,
and the warm parent must fork meanwhile. `holdfast.runtime.warm.sampling` is the launcher's side.
"""
