"""Runs in the controller: sends the uploader process its orders and handles its answers.

The uploader itself, which hashes and sends the files, is `holdfast.syncer.uploader`. Start reading
at `uploads.py`; `publishing.py` decides when the journal is published in storage. On a cluster
`keeper_routes.py` sends each order to the uploader here or to the keeper of a node, and checks
what the nodes' keepers answer.
"""
