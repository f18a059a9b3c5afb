"""Objects of `holdfast.put`: each a file in one folder, which readers map into their memory."""
