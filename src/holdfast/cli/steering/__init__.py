"""Commands that steer a live run: stop, pause, resume, limit, add, note."""
