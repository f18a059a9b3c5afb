"""Two workers train one Keras model, and save it with `tf.keras.Model.save` after each epoch.

    python examples/tensorflow/ring.py --storage /tmp/results --name ring

Kill this script at any moment and start it again with the same --name: it resumes.
The loop is explicit, because `fit` of Keras 3 supports only one worker (docs/frameworks.md).
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from holdfast import train
from holdfast.train import Checkpoint
from holdfast.train.tensorflow import TensorflowTrainer, prepare_dataset_shard


def train_func(config: dict[str, Any]) -> None:
    import tensorflow as tf

    context = train.get_context()
    rank, ranks = context.get_world_rank(), context.get_world_size()
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    tf.keras.utils.set_random_seed(0)

    # Points, and whether they are in a ring; each worker has a part of them.
    points = tf.random.stateless_uniform((2_048, 2), seed=(0, 1), minval=-1.0, maxval=1.0)
    radius = tf.norm(points, axis=1, keepdims=True)
    label = tf.cast((radius > 0.4) & (radius < 0.8), tf.float32)
    pairs = tf.data.Dataset.from_tensor_slices((points, label)).shard(ranks, rank)
    # The batch size of all workers together: the strategy divides it.
    batches = prepare_dataset_shard(pairs.batch(64))
    batches = strategy.experimental_distribute_dataset(batches)

    with strategy.scope():
        layers = [tf.keras.layers.Dense(32, activation="tanh"), tf.keras.layers.Dense(1)]
        model = tf.keras.Sequential([tf.keras.Input((2,)), *layers])
        model.compile(optimizer=tf.keras.optimizers.Adam(config["lr"]), loss="mse")
        model.optimizer.build(model.trainable_variables)

    @tf.function
    def step(points: Any, label: Any) -> Any:
        with tf.GradientTape() as tape:
            errors = (model(points, training=True) - label) ** 2
            loss = tf.nn.compute_average_loss(tf.reduce_sum(errors, axis=1))
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    first = 0
    if checkpoint := train.get_checkpoint():
        with checkpoint.as_directory() as checkpoint_dir:
            # The weights, and the state of the optimizer.
            model.load_weights(os.path.join(checkpoint_dir, "model.keras"))
            first = json.loads(Path(checkpoint_dir, "epoch.json").read_text()) + 1
    for epoch in range(first, config["epochs"]):
        losses = [strategy.run(step, args=batch) for batch in batches]
        loss = sum(float(strategy.reduce("SUM", part, axis=None)) for part in losses)
        with tempfile.TemporaryDirectory() as temp_checkpoint_dir:
            checkpoint = None
            if rank == 0:
                model.save(os.path.join(temp_checkpoint_dir, "model.keras"))
                Path(temp_checkpoint_dir, "epoch.json").write_text(json.dumps(epoch))
                checkpoint = Checkpoint.from_directory(temp_checkpoint_dir)
            train.report({"loss": loss / len(losses)}, checkpoint=checkpoint)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--storage", default=os.path.expanduser("~/ray_results"))
    parser.add_argument("--name", default="ring", help="resume it if it exists")
    parser.add_argument("--epochs", type=int, default=5)
    given = parser.parse_args()

    path = os.path.join(given.storage, given.name)
    if TensorflowTrainer.can_restore(path):
        print(f"Resuming {given.name} ...")
        trainer = TensorflowTrainer.restore(path, train_func)
    else:
        trainer = TensorflowTrainer(
            train_func,
            train_loop_config={"lr": 0.01, "epochs": given.epochs},
            scaling_config=train.ScalingConfig(num_workers=2),
            run_config=train.RunConfig(
                storage_path=given.storage,
                name=given.name,
                checkpoint_config=train.CheckpointConfig(num_to_keep=2),
                failure_config=train.FailureConfig(max_failures=1),
            ),
        )
    result = trainer.fit()
    assert result.metrics
    print(f"{result.metrics['training_iteration']} epochs, loss {result.metrics['loss']:.4f}")


if __name__ == "__main__":
    main()
