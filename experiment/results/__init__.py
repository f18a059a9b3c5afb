"""What a run leaves to its readers: `ResultGrid`, `Result`, `ExperimentAnalysis`, plots, exports.

Reads records and files, starts no process and takes no lock. Start reading at `result_grid.py` and
`read_experiment.py`.
"""
