"""What a run is, from `Tuner(...).fit()` to its results: one controller, its workers, its records.

The folders are layers: each may import those that come after it in this list, and none before it
(import-linter checks it). `api` what users construct; `start` a request becomes an experiment that
is ready to run; `control` the run itself; `workers` the controller's side of the worker actors;
`trackers` W&B, MLflow and the like; `browse` and `doctor` experiments seen from outside; `uploads`
the way from a report to the uploader; `results` what is read back; `progress` what a run shows;
`projector` result.json, progress.csv and TensorBoard; `callbacks` users' hooks; `worker` what runs
in a worker's process; `records` the journal, snapshots and recovery; `user_objects` pickles;
`folder` the names of files.
"""
