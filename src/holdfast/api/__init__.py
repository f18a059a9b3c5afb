"""`Tuner` and the trainers: the classes that users construct.

They check their arguments and pass a request to `holdfast.experiment.start`. Start reading at
`tuner.py`, then `fit.py`, which runs a request to its results.
"""
