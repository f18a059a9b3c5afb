"""What the checkpoints of one model have in common: each is a file in a directory of its own."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Self

from holdfast.syncer.checkpoint.checkpoint import Checkpoint


class ModelCheckpoint(Checkpoint):
    """A checkpoint with one model. What `saved` makes is in a temporary directory that is
    removed with the object."""

    @classmethod
    def saved(cls, filename: str, save: Callable[[str], Any]) -> Self:
        """A checkpoint with the file that `save` writes to the path that it gets."""
        made = cls._temporary()
        save(os.path.join(made.path, filename))
        return made
