"""Runs on several machines: what a user configures, and what an agent runs on its node.

`cluster_config.py` has the classes behind `holdfast.cluster` and their URIs, and `engines.py`
makes the engine of each. `packing.py` packs the user's code for nodes. An agent begins in
`agent_main.py`, and `uploader.py` is its side of the node's uploader. This folder knows no trial:
`experiment/workers` and `experiment/control` place trials on nodes.
"""
