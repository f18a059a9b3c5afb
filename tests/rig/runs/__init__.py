"""Runs that were recorded event by event, without a worker: whole, damaged, steered."""
