"""Engines: each starts one agent process on every node of a cluster, as an ordinary job.

`engine.py` is the interface. An engine knows no trial, no worker and no frame.
`holdfast.runtime.fleet` is its host: it talks to the agents.
"""
