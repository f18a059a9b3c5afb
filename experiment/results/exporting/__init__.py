"""Exports results to tables of other libraries, to files, and to an Optuna storage."""
