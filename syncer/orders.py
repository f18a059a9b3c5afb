"""What the keeper must know of an experiment, and which of its files are persisted."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from holdfast.syncer.durable import is_leftover
from holdfast.syncer.location import Location


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """What the keeper must know. `storage` is None where the local tree is the storage.

    `is_record(path)` says which small files are persisted always, `artifacts` adds all others.
    Neither `private` names nor checkpoints (names with `checkpoint_prefix`) are uploaded as files.
    `epoch` is what an earlier keeper of this same incarnation has claimed, "" where none has.
    """

    root: Path
    storage: Location | None
    experiment_id: str
    journal: str
    head: str
    is_record: Callable[[str], bool]
    checkpoint_prefix: str
    private: tuple[str, ...] = ()
    artifacts: bool = False
    parallel: int = 16
    timeout_s: float = 1800.0
    epoch: str = ""

    def files(self) -> Iterator[str]:
        """The keys of the files, checkpoints and journal apart, that are persisted."""
        for folder, folders, names in os.walk(self.root):
            folders[:] = [
                name
                for name in folders
                if name not in self.private and not name.startswith((".", self.checkpoint_prefix))
            ]
            for name in names:
                key = Path(folder, name).relative_to(self.root).as_posix()
                if self._is_persisted(name) and (self.artifacts or self.is_record(key)):
                    yield key

    def _is_persisted(self, name: str) -> bool:
        return name not in self.private and not is_leftover(name)
