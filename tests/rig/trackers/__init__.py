"""A tracker that is a file, a real server of one, and what has arrived in each."""
