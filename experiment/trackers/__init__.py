"""Trackers (W&B, MLflow, any callback of that kind), each in its own process.

The process reads the journal, so the run never waits for a tracker. Start reading at
`process.py`; `delivery.py` is its pure part, `supervisor.py` the controller's side.
"""
