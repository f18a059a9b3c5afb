"""Trackers (W&B, MLflow, Comet, any callback of that kind): each has a process of its own.

It reads the journal, so the run never waits for it. Start reading at `delivery_loop.py`;
`delivery.py` is its pure part, `supervisor.py` the controller's side.
"""
