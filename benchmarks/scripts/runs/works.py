"""The shortest training with each library, which the function itself imports."""

from __future__ import annotations

import logging
import os
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from types import ModuleType


def torch(_: ModuleType | None) -> None:
    import torch

    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()


def lightning(_: ModuleType | None) -> None:
    import lightning
    from lightning.pytorch.demos.boring_classes import BoringModel

    trainer = lightning.Trainer(
        max_steps=2, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(BoringModel())


def transformers(_: ModuleType | None) -> None:
    import torch
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

    config = BertConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=1,
                        intermediate_size=8, vocab_size=16)  # fmt: skip
    row = {"input_ids": torch.ones(4, dtype=torch.long), "labels": 0}
    arguments = TrainingArguments(
        output_dir="out", max_steps=2, report_to=[], disable_tqdm=True, save_strategy="no",
        use_cpu=True,
    )  # fmt: skip
    model = BertForSequenceClassification(config)
    Trainer(model=model, args=arguments, train_dataset=[row] * 16).train()


def tensorflow(_: ModuleType | None) -> None:
    import tensorflow

    keras = tensorflow.keras
    model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(tensorflow.ones((4, 8)), tensorflow.ones((4, 1)), verbose=0)


def sklearn(_: ModuleType | None) -> None:
    import numpy
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.model_selection import cross_val_score

    rows = numpy.arange(240.0).reshape(60, 4)
    cross_val_score(RandomForestClassifier(n_estimators=5), rows, rows[:, 0] % 8 > 3, cv=3)


def xgboost(_: ModuleType | None) -> None:
    import numpy
    import xgboost

    rows = numpy.arange(240.0).reshape(60, 4)
    data = xgboost.DMatrix(rows, label=rows[:, 0])
    xgboost.train({"nthread": 1}, data, num_boost_round=3)


def pandas(_: ModuleType | None) -> None:
    import io

    import pandas

    table = pandas.DataFrame({"group": [0, 1] * 30, "value": range(60)})
    file = io.BytesIO()
    table.to_parquet(file)
    pandas.read_parquet(file).groupby("group").describe()


WORKS: Mapping[str, Callable[[ModuleType | None], None]] = {
    work.__name__: work
    for work in (torch, lightning, transformers, tensorflow, sklearn, xgboost, pandas)
}


def timed(library: str, loaded: ModuleType | None) -> tuple[float, int]:
    """Train once. Returns the seconds, and how many modules were imported."""
    warnings.simplefilter("ignore")
    logging.disable()
    before = len(sys.modules)
    began_s = time.perf_counter()
    WORKS[library](loaded)
    return time.perf_counter() - began_s, len(sys.modules) - before


def quiet() -> None:
    """Silence the libraries."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
