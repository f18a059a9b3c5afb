"""Turns a request into a run's plan, or raises an error that says why it cannot run.

Start reading at `planning.py`, whose plan `holdfast.api.fit` runs. A restore is a request too:
`restoring.py` makes it. `extension.py` compares the script's settings and code with the
experiment's. This folder may import every other room of the experiment. It starts no process.
"""
