"""Reads the results of a run: `ResultGrid`, `Result`, `ExperimentAnalysis`, plots, exports.

It reads records and files, starts no process and takes no lock. Start reading at `result_grid.py`
and `read_experiment.py`.
"""
