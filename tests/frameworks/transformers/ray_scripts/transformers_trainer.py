"""A Hugging Face Trainer on two workers with Ray's callback and prepare_trainer."""

import os

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

import ray.train
import ray.train.huggingface.transformers
from ray.train import CheckpointConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

STORAGE = os.path.abspath("results")


class Counting(torch.utils.data.Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, index):
        row = (index + torch.arange(8)) % 16
        return {"input_ids": row, "labels": row}


def train_func():
    torch.manual_seed(0)
    size = {"n_positions": 8, "n_embd": 8, "n_layer": 1, "n_head": 1}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=16, bos_token_id=0, eos_token_id=0, **size))
    arguments = TrainingArguments(
        output_dir="trainer",
        num_train_epochs=3,
        eval_strategy="epoch",
        save_strategy="epoch",
        logging_strategy="epoch",
        per_device_train_batch_size=8,
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = Trainer(
        model=model, args=arguments, train_dataset=Counting(), eval_dataset=Counting()
    )
    trainer.add_callback(ray.train.huggingface.transformers.RayTrainReportCallback())
    trainer = ray.train.huggingface.transformers.prepare_trainer(trainer)
    checkpoint = ray.train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as folder:
            trainer.train(resume_from_checkpoint=os.path.join(folder, "checkpoint"))
    else:
        trainer.train()


if __name__ == "__main__":
    path = os.path.join(STORAGE, "transformers")
    if TorchTrainer.can_restore(path):
        trainer = TorchTrainer.restore(path)
    else:
        trainer = TorchTrainer(
            train_func,
            scaling_config=ScalingConfig(num_workers=2, use_gpu=False),
            run_config=RunConfig(
                name="transformers",
                storage_path=STORAGE,
                checkpoint_config=CheckpointConfig(
                    num_to_keep=1,
                    checkpoint_score_attribute="eval_loss",
                    checkpoint_score_order="min",
                ),
            ),
        )
    result = trainer.fit()
    assert result.metrics["epoch"] == 3
    with result.checkpoint.as_directory() as folder:
        print("DONE", sorted(os.listdir(folder)))
