"""Callbacks that report to a trial from inside a framework."""
