"""The training of the examples in this folder: a small model, on generated data."""

from __future__ import annotations

import os
import tempfile
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

from holdfast import train
from holdfast.train import Checkpoint
from holdfast.train.torch import prepare_data_loader, prepare_model


def patterns(count: int) -> TensorDataset:
    """Images of 8 x 8 pixels, each with one of four patterns in noise."""
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randn(4, 64, generator=generator)
    kinds = torch.randint(4, (count,), generator=generator)
    return TensorDataset(drawn[kinds] + torch.randn(count, 64, generator=generator), kinds)


def make_model() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(64, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))


class Training:
    """A training in all workers, from the newest checkpoint if there is one.

    `first_epoch` is the one to begin with; `history` has what was reported of those before it, and
    is kept in the checkpoint.
    """

    def __init__(self, lr: float = 0.01, batch_size: int = 32) -> None:
        torch.manual_seed(0)
        loader = DataLoader(patterns(256), batch_size=batch_size, shuffle=True)
        self._loader = prepare_data_loader(loader)
        self.model = prepare_model(make_model())
        self._optimizer = torch.optim.Adam(self.model.parameters(), lr=lr)
        self.history: list[dict[str, Any]] = []
        checkpoint = train.get_checkpoint()
        if checkpoint:
            with checkpoint.as_directory() as folder:
                saved = torch.load(os.path.join(folder, "saved.pt"))
            self.model.load_state_dict(saved["model"])
            self._optimizer.load_state_dict(saved["optimizer"])
            self.history = saved["history"]
        self.first_epoch = len(self.history)

    def optimize(self, epoch: int) -> float:
        """Train for one epoch; the loss of the last batch."""
        self._loader.sampler.set_epoch(epoch)
        for images, kinds in self._loader:
            loss = torch.nn.functional.cross_entropy(self.model(images), kinds)
            self._optimizer.zero_grad()
            loss.backward()
            self._optimizer.step()
        return loss.item()

    def report(self, metrics: dict[str, Any]) -> None:
        """Report an epoch, with a checkpoint that rank 0 writes."""
        with tempfile.TemporaryDirectory() as folder:
            checkpoint = None
            if train.get_context().get_world_rank() == 0:
                saved = {
                    "model": self.model.state_dict(),
                    "optimizer": self._optimizer.state_dict(),
                    "history": [*self.history, metrics],
                }
                torch.save(saved, os.path.join(folder, "saved.pt"))
                checkpoint = Checkpoint.from_directory(folder)
            train.report(metrics, checkpoint=checkpoint)
        self.history.append(metrics)
