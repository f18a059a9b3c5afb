"""Callbacks that report to a trial from inside of a framework."""
