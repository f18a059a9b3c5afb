"""The nodes of a cluster: what is free on each, and where the bundles of a trial go.

`cluster.py` counts what is free, chooses the nodes of a trial, and says if its request can ever be
met.
"""
