"""A checkpoint of a torch model alone, saved and loaded in one call each."""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping
from typing import Any, Self

import torch
from torch.nn.modules.utils import consume_prefix_in_state_dict_if_present
from torch.nn.parallel import DistributedDataParallel

from holdfast.train.model_checkpoint import ModelCheckpoint
from holdfast.trial.errors import InvalidConfig

_MODEL = "model.pt"


class TorchCheckpoint(ModelCheckpoint):
    """A checkpoint with a model, or its state dict, in `model.pt`.

    What `from_model` and `from_state_dict` make is in a temporary directory that is removed
    with the object.
    """

    @classmethod
    def from_state_dict(cls, state_dict: Mapping[str, Any]) -> Self:
        """A checkpoint of a state dict, written with `torch.save`."""
        return cls._made(dict(state_dict))

    @classmethod
    def from_model(cls, model: torch.nn.Module) -> Self:
        """The whole model, pickled; of a DistributedDataParallel the module in it."""
        return cls._made(model.module if isinstance(model, DistributedDataParallel) else model)

    def get_model(self, model: torch.nn.Module | None = None) -> torch.nn.Module:
        """The model; from a state dict, `model` with that state.

        A whole model is unpickled, which runs what its pickle says: load only your own.

        Raises InvalidConfig for a state dict without a `model`, StorageError for a checkpoint that
        cannot be read.
        """
        with self.as_directory() as directory:
            saved = _load(os.path.join(directory, _MODEL))
        if isinstance(saved, torch.nn.Module):
            return saved
        if model is None:
            raise InvalidConfig(
                f"{self.path} holds a state dict: give get_model() the model to load it into"
            )
        consume_prefix_in_state_dict_if_present(saved, "module.")
        model.load_state_dict(saved)
        return model

    @classmethod
    def _made(cls, value: Any) -> Self:
        return cls.saved(_MODEL, lambda path: torch.save(value, path))


def _load(path: str) -> Any:
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        return torch.load(path, map_location="cpu", weights_only=False)
