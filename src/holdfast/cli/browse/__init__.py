"""`ls`, `show` and the other commands that read experiments."""
