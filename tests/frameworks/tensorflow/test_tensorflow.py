"""TensorFlow and Keras on several ranks and in trials: real trainings, killed and resumed.

This process never imports TensorFlow: its import takes seconds, and is the workers'.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from holdfast import train, tune
from holdfast.train.tensorflow import TensorflowTrainer
from holdfast.trial.errors import InvalidConfig
from tests.rig.bench import Bench, results
from tests.rig.nodes.machines import Machines
from tests.rig.script import UserScript

pytestmark = pytest.mark.process

EPOCHS = 4
# Importing TensorFlow reads more than a gigabyte: 4 s on a machine of its own, 40 on a busy one.
PATIENCE_S = 150.0


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")


def rows(result: train.Result) -> list[float]:
    found = list(result.rows())
    assert [row["training_iteration"] for row in found] == list(range(1, len(found) + 1))
    return [row["loss"] for row in found]


def told(script: UserScript) -> list[Any]:
    return list(results(script))


@pytest.mark.smoke
def test_killed_controller_and_killed_rank_cost_no_epoch(bench: Bench) -> None:
    """Without disturbance the optimizer has made four steps in each epoch."""
    bench.environ["HOLDFAST_TEST_DIES"] = "2 4 1"
    gate = bench.gate("epoch-3")
    script = bench.start(epochs=5)
    script.wait_for("at 3", PATIENCE_S)
    script.dies()
    gate.open()
    after = bench.restore(epochs=5).succeeds(PATIENCE_S)
    assert after.left() == []
    began = [(note["attempt"], note["epoch"]) for note in bench.notes()]
    assert began == [(1, 1), (1, 2), (1, 3), (2, 3), (2, 4), (3, 4), (3, 5)]
    rows_told = told(after)
    assert [steps for _, steps in rows_told] == [4, 8, 12, 16, 20]
    losses = [loss for loss, _ in rows_told]
    assert losses == sorted(losses, reverse=True)
    assert bench.problems() == []


def test_two_ranks_learn_what_one_learns(bench: Bench) -> None:
    """The same samples in batches of 16, half of each in one rank, or all of it."""
    two = told(bench.start(epochs=2).succeeds(PATIENCE_S))
    one = told(bench.start(epochs=2, workers=1, name="one").succeeds(PATIENCE_S))
    assert [steps for _, steps in two] == [4, 8]
    assert [loss for loss, _ in two] == pytest.approx([loss for loss, _ in one], rel=1e-4)


def test_ranks_on_two_machines_have_their_addresses_and_learn_what_those_of_one_learn(
    bench: Bench, two_machines: Machines
) -> None:
    bench.environ["HOLDFAST_CLUSTER"] = two_machines.cluster(cpus_per_node=0.1)
    script = bench.start(epochs=2).succeeds(PATIENCE_S)
    assert script.left() == []
    tasks = [script.wait_for(f"task {rank}").split()[2:] for rank in range(2)]
    addresses = {machine.name: machine.address for machine in two_machines.all}
    hosts = [host for host, *_ in tasks]
    assert sorted(hosts) == sorted(addresses)
    assert [workers for _, *workers in tasks] == [[addresses[host] for host in hosts]] * 2
    del bench.environ["HOLDFAST_CLUSTER"]
    one = told(bench.start(epochs=2, name="one").succeeds(PATIENCE_S))
    assert [steps for _, steps in told(script)] == [steps for _, steps in one] == [4, 8]
    assert [loss for loss, _ in told(script)] == pytest.approx([loss for loss, _ in one], rel=1e-5)
    assert bench.problems() == []


# -- fit() with the callback ----------------------------------------------------------------------


def fitted(config: dict[str, Any]) -> None:
    """Four epochs of `fit`, in which the last rank dies once where the config says so."""
    import tensorflow as tf

    from holdfast.train.tensorflow import prepare_dataset_shard
    from holdfast.tune.integration.keras import TuneReportCheckpointCallback

    context = train.get_context()
    rank, ranks = context.get_world_rank(), context.get_world_size()
    if ranks > 1:
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
    else:
        strategy = tf.distribute.get_strategy()
    tf.keras.utils.set_random_seed(1)

    class Dying(tf.keras.callbacks.Callback):
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            if config["dies"] and (context.get_attempt(), epoch, rank) == (1, 2, ranks - 1):
                os.kill(os.getpid(), signal.SIGKILL)

    inputs = tf.random.stateless_normal((32, 3), seed=(1, 2))
    pairs = tf.data.Dataset.from_tensor_slices((inputs, tf.reduce_sum(inputs, 1, keepdims=True)))
    batches = prepare_dataset_shard(pairs.shard(ranks, rank).batch(8))
    report = TuneReportCheckpointCallback({"loss": "loss"})
    with strategy.scope():
        layers = [tf.keras.layers.InputLayer((3,)), tf.keras.layers.Dense(1)]
        model = tf.keras.Sequential(layers)
        model.compile(optimizer=tf.keras.optimizers.Adam(0.05), loss="mse")
        first = report.resume(model)
    model.fit(batches, epochs=EPOCHS, initial_epoch=first, verbose=0, callbacks=[report, Dying()])
    checkpoint = train.get_checkpoint()
    assert checkpoint
    if ranks == 1:
        kept = report.get_model(checkpoint)
        assert [w.tolist() for w in kept.get_weights()] == [
            w.tolist() for w in model.get_weights()
        ]


def test_trials_of_fit_are_killed_and_come_to_the_same_numbers(tmp_path: Path) -> None:
    grid = tune.Tuner(
        fitted,
        param_space={"dies": tune.grid_search([True, False])},
        run_config=tune.RunConfig(
            storage_path=str(tmp_path),
            failure_config=tune.FailureConfig(max_failures=1),
            checkpoint_config=tune.CheckpointConfig(num_to_keep=1),
            verbose=0,
        ),
    ).fit()
    assert [str(error) for error in grid.errors] == []
    killed, calm = grid
    assert len(rows(calm)) == EPOCHS
    assert rows(killed) == pytest.approx(rows(calm), rel=1e-5)


def test_fit_of_tf_keras_on_two_ranks_is_killed_and_comes_to_the_same_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "1")
    trainer = TensorflowTrainer(
        fitted,
        scaling_config=train.ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.1}),
        run_config=train.RunConfig(
            storage_path=str(tmp_path),
            failure_config=train.FailureConfig(max_failures=1),
            verbose=0,
        ),
    )
    space = {"train_loop_config": {"dies": tune.grid_search([True, False])}}
    grid = tune.Tuner(trainer, param_space=space, run_config=trainer.run_config).fit()
    assert [str(error) for error in grid.errors] == []
    killed, calm = grid
    assert len(rows(calm)) == EPOCHS
    assert rows(killed) == pytest.approx(rows(calm), rel=1e-5)


def events(config: dict[str, Any]) -> None:
    """What is reported when, of six batches in two epochs."""
    import numpy as np
    import tensorflow as tf

    from holdfast.train.tensorflow.keras import ReportCheckpointCallback
    from holdfast.tune.integration.keras import TuneReportCallback

    with pytest.raises(InvalidConfig, match="'epoch_middle' is not one of epoch_begin, epoch_end"):
        ReportCheckpointCallback(report_metrics_on=["epoch_end", "epoch_middle"])
    model = tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    data = {"x": np.ones((6, 3)), "y": np.ones((6, 1)), "batch_size": 2, "verbose": 0}
    both = ReportCheckpointCallback("epoch_end", "train_batch_end", ["loss"])
    assert both.resume(model) == 0
    model.fit(**data, epochs=2, callbacks=[both])
    with pytest.raises(tune.TuneError, match="no 'accuracy' to report; what there is: 'loss'"):
        model.fit(**data, callbacks=[TuneReportCallback("accuracy")])
    model.fit(**data, callbacks=[TuneReportCallback("loss", on="test_end")])


def test_metrics_and_checkpoints_are_reported_at_the_events_that_were_asked_for(
    tmp_path: Path,
) -> None:
    run = tune.RunConfig(storage_path=str(tmp_path), verbose=0)
    (result,) = tune.Tuner(events, run_config=run).fit()
    assert result.error is None
    saved = [row.get("checkpoint_dir_name") for row in result.rows()]
    epoch = [None, None, None]
    assert saved == [*epoch, "checkpoint_000000", *epoch, "checkpoint_000001"]
    assert "Keras has not called test_end" in Path(result.path, "stderr").read_text()


def modelled(config: dict[str, Any]) -> None:
    """A model goes through a checkpoint of its own."""
    import tensorflow as tf

    from holdfast.train.tensorflow import TensorflowCheckpoint

    model = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1)])
    model.compile(loss="mse")
    made = TensorflowCheckpoint.from_model(model)
    tune.report({"loss": 0}, checkpoint=made)
    newest = tune.get_checkpoint()
    assert newest is not None
    same = TensorflowCheckpoint(newest.path).get_model()
    ones = tf.ones((1, 2))
    assert same.loss == "mse"
    path = made.path
    del made
    tune.report(
        {
            "same": same(ones).numpy().tolist() == model(ones).numpy().tolist(),
            "left": os.path.exists(path),
        }
    )


def test_a_model_goes_through_a_checkpoint_of_its_own(tmp_path: Path) -> None:
    run = tune.RunConfig(storage_path=str(tmp_path), verbose=0)
    (result,) = tune.Tuner(modelled, run_config=run).fit()
    assert result.error is None
    assert result.metrics is not None
    assert (result.metrics["same"], result.metrics["left"]) == (True, False)


# -- where TensorFlow is imported -----------------------------------------------------------------

TOP_LEVEL = """
import json, sys
import tensorflow as tf
import computes
from holdfast import tune

def trainable(config):
    tune.report({"sum": float(tf.reduce_sum(tf.ones(3))) + float(computes.ONE)})

def plain(config):
    tune.report({"sum": float(tf.reduce_sum(tf.ones(3)))})

if __name__ == "__main__":
    found = []
    for function in (plain, trainable):
        run = tune.RunConfig(storage_path=sys.argv[1], verbose=1)
        (result,) = tune.Tuner(function, run_config=run).fit()
        found.append(result.metrics["sum"])
    print("RESULTS", json.dumps(found))
"""


def test_tensorflow_may_be_imported_by_the_script_and_have_computed_in_a_module_of_it(
    bench: Bench,
) -> None:
    bench.write("import tensorflow as tf\nONE = tf.constant(1.0) + 0\n", "computes.py")
    script = bench.run(bench.write(TOP_LEVEL), str(bench.storage)).succeeds(PATIENCE_S)
    assert told(script) == [3, 4]
    # After an operation TensorFlow has threads, and so that process is not forked.
    assert (script.stdout + script.stderr).count("Each worker starts a fresh interpreter") == 1
