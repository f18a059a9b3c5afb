"""What the uploader must know of an experiment, and which of its files are persisted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from holdfast.dataclass import dataclass
from holdfast.syncer.artifacts.plan import INDEX_NAME, LISTING_NAME
from holdfast.syncer.files.durable import is_leftover
from holdfast.syncer.stores.location import Location


def _none(key: str) -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """What the uploader must know. `storage` is None where the local tree is the storage.

    `is_record(key)` says which small files are persisted always, `is_remade(key)` which of them
    every restore writes anew; `artifacts` adds all other files. What is called one of `private`
    in the experiment's folder, or one of `private_inside` in a trial's, is never uploaded as a
    file, nor are a trial's checkpoints (folders whose names are so by `is_checkpoint(name)`).
    `disk_deadline_s` is how long a call may wait for the disk, 0 for no deadline. `epoch` is what
    an earlier uploader of this same incarnation has claimed, "" where none has.
    """

    root: Path
    storage: Location | None
    experiment_id: str
    journal: str
    head: str
    is_record: Callable[[str], bool]
    is_checkpoint: Callable[[str], bool]
    private: tuple[str, ...] = ()
    private_inside: tuple[str, ...] = ()
    is_remade: Callable[[str], bool] = _none
    artifacts: bool = False
    parallel: int = 16
    timeout_s: float = 1800.0
    disk_deadline_s: float = 0.0
    epoch: str = ""

    def is_ours(self, key: str, *, is_folder: bool) -> bool:
        """Whether the file or folder is kept by other means, or for nobody but us."""
        above, _, name = key.rpartition("/")
        if name[0] == "." and is_leftover(name):
            return True
        if not above:
            return name in (*self.private, self.journal, self.head, INDEX_NAME)
        if "/" in above:
            return False
        if name in (*self.private_inside, INDEX_NAME, LISTING_NAME):
            return True
        return is_folder and self.is_checkpoint(name)
