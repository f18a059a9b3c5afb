"""Datasets as TensorFlow reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holdfast import data, train
from holdfast.trial.errors import InvalidConfig


def rows() -> data.Dataset:
    return data.from_numpy(
        {
            "x": np.arange(20, dtype=np.float32).reshape(10, 2),
            "w": np.arange(10, dtype=np.float32),
            "y": np.arange(10) % 2,
        }
    )


def test_features_and_labels_are_tensors_of_the_columns() -> None:
    import tensorflow as tf

    ds = rows().to_tf("x", "y", batch_size=4)
    features, labels = ds.element_spec
    assert (features.shape.as_list(), features.dtype) == ([None, 2], tf.float32)
    assert (labels.shape.as_list(), labels.dtype) == ([None], tf.int64)
    batches = [(x.numpy(), y.numpy()) for x, y in ds]
    assert [len(x) for x, _ in batches] == [4, 4, 2]
    assert np.concatenate([x for x, _ in batches])[:, 0].tolist() == list(range(0, 20, 2))
    assert np.concatenate([y for _, y in batches]).tolist() == [0, 1] * 5
    policy = ds.options().experimental_distribute.auto_shard_policy
    assert policy == tf.data.experimental.AutoShardPolicy.OFF


def test_several_columns_are_a_dict_and_more_may_be_added() -> None:
    ds = rows().to_tf(["x", "w"], ["y"], additional_columns="w", batch_size=10)
    ((features, labels, weights),) = list(ds)
    assert sorted(features) == ["w", "x"]
    assert labels["y"].shape == weights.shape == (10,)
    texts = data.from_items([{"t": "a", "y": True}]).to_tf("t", "y")
    ((text, flag),) = list(texts)
    assert (text.numpy().tolist(), flag.numpy().tolist()) == ([b"a"], [True])


def test_keras_fits_it_and_each_epoch_has_an_order_of_its_own(tmp_path: Path) -> None:
    def loop(config: dict[str, Any]) -> None:
        import keras

        shard = train.get_dataset_shard("train")
        orders = [
            [float(x) for batch, _ in shard.to_tf("w", "y", batch_size=2) for x in batch]
            for _ in range(2)
        ]
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile(loss="mse")
        ds = shard.to_tf("x", "y", batch_size=5)
        history = model.fit(ds, epochs=2, verbose=0)
        rank = train.get_context().get_world_rank()
        facts = {"orders": orders, "epoch": shard.epoch}
        Path(config["notes"], f"{rank}.json").write_text(json.dumps(facts))
        train.report({"losses": len(history.history["loss"])})

    result = train.DataParallelTrainer(
        loop,
        train_loop_config={"notes": str(tmp_path)},
        scaling_config=train.ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.5}),
        run_config=train.RunConfig(storage_path=str(tmp_path / "results"), verbose=0),
        datasets={"train": rows().random_shuffle(seed=1)},
    ).fit()
    assert result.metrics is not None
    assert result.metrics["losses"] == 2
    told = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    assert [facts["epoch"] for facts in told] == [4, 4]
    for epoch in range(2):
        seen = [number for facts in told for number in facts["orders"][epoch]]
        assert sorted(seen) == list(range(10))
    assert told[0]["orders"][0] != told[0]["orders"][1]


def test_a_missing_column_or_one_that_cannot_be_a_tensor_is_reported() -> None:
    with pytest.raises(InvalidConfig, match="names the column 'z', but the dataset has x, w, y"):
        rows().to_tf("z", "y")
    with pytest.raises(InvalidConfig, match="column 'l' cannot be a tensor: its values are list"):
        data.from_items([{"l": [1]}, {"l": [1, 2]}]).to_tf("l", "l")
