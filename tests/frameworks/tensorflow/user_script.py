"""Two workers train one Keras model in their own loop, and mark each epoch for a test.

HOLDFAST_TEST_DIES="<attempt> <epoch> <rank>" kills that rank as it begins that epoch.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import warnings
from typing import Any

from holdfast import train
from holdfast.train.tensorflow import TensorflowTrainer, prepare_dataset_shard
from tests.rig.script import mark, note, wait_at

OPTIONS = json.loads(sys.argv[1])


def begin(epoch: int) -> None:
    context = train.get_context()
    if context.get_world_rank() == 0:
        note(what="began", epoch=epoch, attempt=context.get_attempt())
        mark("at", epoch, context.get_attempt())
    wait_at(f"epoch-{epoch}")
    if os.environ.get("HOLDFAST_TEST_DIES") == (
        f"{context.get_attempt()} {epoch} {context.get_world_rank()}"
    ):
        os.kill(os.getpid(), signal.SIGKILL)


def loop(config: dict[str, Any]) -> None:
    # Warnings are errors here; this one is between TensorFlow 2.21 and NumPy.
    warnings.filterwarnings("ignore", message="__array__ implementation")
    import tensorflow as tf

    context = train.get_context()
    rank, ranks = context.get_world_rank(), context.get_world_size()
    cluster = json.loads(os.environ["TF_CONFIG"])
    workers = cluster["cluster"]["worker"]
    assert (cluster["task"]["index"], len(workers)) == (rank, ranks)
    mark("task", rank, socket.gethostname(), *(where.rpartition(":")[0] for where in workers))
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    assert strategy.num_replicas_in_sync == ranks
    tf.keras.utils.set_random_seed(1)
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.Dense(1)])
        model.compile(optimizer=tf.keras.optimizers.Adam(0.05), loss="mse")
        model.optimizer.build(model.trainable_variables)
    inputs = tf.random.stateless_normal((64, 3), seed=(1, 2))
    pairs = tf.data.Dataset.from_tensor_slices((inputs, tf.reduce_sum(inputs, 1, keepdims=True)))
    batches = strategy.experimental_distribute_dataset(
        prepare_dataset_shard(pairs.shard(ranks, rank).batch(16))
    )

    @tf.function
    def step(batch: Any) -> Any:
        def part(inputs: Any, wanted: Any) -> Any:
            with tf.GradientTape() as tape:
                errors = tf.reduce_sum((model(inputs, training=True) - wanted) ** 2, axis=1)
                loss = tf.nn.compute_average_loss(errors)
            gradients = tape.gradient(loss, model.trainable_variables)
            model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            return loss

        return strategy.reduce("SUM", strategy.run(part, args=batch), axis=None)

    first = 1
    if begun := train.get_checkpoint():
        with begun.as_directory() as folder:
            model.load_weights(os.path.join(folder, "model.keras"))
            with open(os.path.join(folder, "epoch")) as file:
                first = int(file.read()) + 1
    for epoch in range(first, config["epochs"] + 1):
        begin(epoch)
        losses = [float(step(batch)) for batch in batches]
        metrics = {"loss": sum(losses), "steps": int(model.optimizer.iterations.numpy())}
        checkpoint = None
        if rank == 0:
            staged = train.staging_directory()
            model.save(os.path.join(staged, "model.keras"))
            with open(os.path.join(staged, "epoch"), "w") as file:
                file.write(str(epoch))
            checkpoint = train.Checkpoint.from_directory(staged)
        train.report(metrics, checkpoint=checkpoint)


def main() -> None:
    path = os.path.join(OPTIONS["storage"], OPTIONS.get("name", "run"))
    if "restore" in OPTIONS:
        trainer = TensorflowTrainer.restore(path)
    else:
        trainer = TensorflowTrainer(
            loop,
            train_loop_config={"epochs": OPTIONS["epochs"]},
            scaling_config=train.ScalingConfig(
                num_workers=OPTIONS.get("workers", 2), resources_per_worker={"CPU": 0.1}
            ),
            run_config=train.RunConfig(
                name=OPTIONS.get("name", "run"),
                storage_path=OPTIONS["storage"],
                failure_config=train.FailureConfig(max_failures=1),
                checkpoint_config=train.CheckpointConfig(num_to_keep=1),
                verbose=0,
            ),
        )
    result = trainer.fit()
    print("RESULTS", json.dumps([[row["loss"], row["steps"]] for row in result.rows()]))


if __name__ == "__main__":
    main()
