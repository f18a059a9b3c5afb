"""Reads experiments: running or not, here or in storage, without their code.

It takes no lock and starts no process; only `removal.py` and the doctor change an experiment's
files. Start reading at `reading.py`, which finds the experiment that the user named and returns an
`ExperimentView` of `holdfast.experiment.records.view`. All else renders a view or checks it:
`result_grid.py` (what `fit()` returns) with `result.py` and `outcome.py`, `plots.py`, `catalog.py`
(`holdfast ls`), `overview.py` (`show` and `nodes`), `logs.py`, `comparison.py`, `removal.py`
(`rm`), `page/` (the live page) and `doctor/`.
"""
