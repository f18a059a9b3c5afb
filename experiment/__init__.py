"""A run, from `Tuner(...).fit()` to its results: one controller, its workers, its records.

The folders are layers. Each may import those after it in this list, and none before it
(import-linter checks this):

* `api`: the classes that users construct
* `start`: turns a request into an experiment that is ready to run
* `control`: the run itself
* `workers`: the controller's side of the worker processes
* `trackers`: W&B, MLflow and other trackers
* `browse` and `doctor`: read and repair experiments from outside
* `uploads`: the controller's side of the uploader process
* `results`: `Result`, `ResultGrid` and analysis
* `progress`: the output of a run
* `projector`: result.json, progress.csv and TensorBoard
* `callbacks`: users' hooks
* `worker`: the code inside the worker processes
* `records`: journal, snapshots and recovery
* `user_objects`: pickles
* `folder`: the names of files
"""
