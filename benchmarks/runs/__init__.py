"""Starts, trials, reports, prints and waiting: what a run on one machine costs."""
