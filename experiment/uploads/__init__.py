"""Runs in the controller: sends the uploaders their orders and handles their answers.

The uploaders, which hash and send the files, are `holdfast.syncer.uploader`. Start reading at
`checkpoint_table.py`, a pure table of what may become of a checkpoint. `uploads.py` performs that:
it sends each order to the uploader here or to that of a node, and handles the answers.
`waiting.py` has what a trial asks before it starts, `publishing.py` decides when the journal is
published in storage, and `nodes.py` knows the nodes and which files of trials lie there.
"""
