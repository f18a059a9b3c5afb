"""The nodes of a cluster: what is free on each, and where the bundles of a trial go.

Start reading at `cluster.py`; `arranging.py` chooses the nodes of a trial, and says if its request
can ever be met.
"""
