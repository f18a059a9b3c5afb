"""What user code prints: captured in files of the trial, and shown."""
