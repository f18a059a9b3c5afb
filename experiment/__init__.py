"""A run: one controller, its workers, its records. `holdfast.api` starts it, `holdfast.results`
reads it.

The folders are layers. Each may import those after it in this list, and none before it
(import-linter checks this):

* `start`: turns a request into an experiment that is ready to run
* `control`: the run itself
* `workers`: the controller's side of the worker processes
* `trackers`: W&B, MLflow and other trackers
* `uploads`: the controller's side of the uploader process
* `progress`: the output of a run
* `projector`: result.json, progress.csv and TensorBoard
* `callbacks`: users' hooks
* `worker`: the code inside the worker processes
* `records`: journal, snapshots and recovery
* `user_objects`: pickles
* `folder`: the names of files
"""
