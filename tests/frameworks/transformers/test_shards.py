"""A Transformers Trainer with the batches of its rank's share of a dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holdfast import data, train
from holdfast.train.huggingface.transformers import TrainReportCallback, prepare_trainer
from holdfast.train.torch import TorchTrainer

pytestmark = pytest.mark.process


def loop(config: dict[str, Any]) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    size = {"n_positions": 4, "n_embd": 4, "n_layer": 1, "n_head": 1}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=8, bos_token_id=0, eos_token_id=0, **size))
    args = TrainingArguments(
        output_dir="saved",
        max_steps=6,
        save_strategy="steps",
        save_steps=3,
        eval_strategy="steps",
        eval_steps=3,
        report_to="none",
        disable_tqdm=True,
        ddp_find_unused_parameters=False,
    )
    rows = {
        name: train.get_dataset_shard(name).iter_torch_batches(batch_size=4)
        for name in ("train", "valid")
    }
    trainer = Trainer(
        model=model, args=args, train_dataset=rows["train"], eval_dataset=rows["valid"]
    )
    trainer.add_callback(TrainReportCallback())
    prepare_trainer(trainer).train()


def test_each_rank_trains_on_the_ready_batches_of_its_share(tmp_path: Path) -> None:
    tokens = np.arange(24 * 4).reshape(24, 4) % 8
    rows = data.from_numpy({"input_ids": tokens, "labels": tokens})
    result = TorchTrainer(
        loop,
        datasets={"train": rows, "valid": rows},
        scaling_config=train.ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.1}),
        run_config=train.RunConfig(storage_path=str(tmp_path), name="run", verbose=0),
    ).fit()
    # 24 rows for two ranks, in batches of 4: an epoch is three steps, and they need two.
    steps = [row["step"] for row in result.rows()]
    assert steps == [3, 6]
    assert all(row["eval_loss"] > 0 for row in result.rows())
