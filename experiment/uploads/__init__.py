"""Runs in the controller: sends the uploaders their orders and handles their answers.

The uploaders, which hash and send the files, are `holdfast.syncer.uploader`. Start reading at
`uploads.py`, which sends each order to the uploader here or to that of a node. `publishing.py`
decides when the journal is published in storage, `waiting.py` has what waits for an answer, and
`nodes.py` what lies on nodes.
"""
