"""A run: one controller, its workers, its records. `holdfast.api` starts it, `holdfast.results`
reads it.

The folders are layers. Each may import those after it in this list, and none before it
(import-linter checks this):

* `start`: turns a request into an experiment that is ready to run
* `control`: the run itself
* `workers`: the controller's side of the worker processes
* `queue`: `holdfast queue`, scripts that wait for each other
* `trackers`: W&B, MLflow and other trackers
* `steering`: orders of people, and the socket that takes them
* `uploads`: the controller's side of the uploader process
* `progress`: the output of a run
* `projector`: result.json, progress.csv and TensorBoard
* `callbacks`: users' hooks
* `machine`: several scripts that share one machine
* `nodes`: clusters, and what nodes get
* `worker`: the code inside the worker processes
* `records`: journal, snapshots and recovery
* `user_objects`: pickles
* `folder`: the names of files
"""
