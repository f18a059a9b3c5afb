"""Runs on several machines: what a user configures, and what an agent runs on its node.

`cluster_config.py` has the classes behind `holdfast.cluster`, `cluster_uri.py` their URIs. This
folder knows no trial: `experiment/workers` and `experiment/control` place trials on nodes.
"""
