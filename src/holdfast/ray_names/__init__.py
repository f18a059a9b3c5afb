"""The names of Ray: where each is in holdfast, and what to use for those that are missing."""
