"""The uploader's settings: the facts it needs about an experiment, and which files to upload."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from holdfast.dataclass import dataclass
from holdfast.syncer.artifacts.plan import ENDED_NAME, INDEX_NAME, LISTING_NAME
from holdfast.syncer.files.durable import is_leftover
from holdfast.syncer.stores.claim import Claim
from holdfast.syncer.stores.location import Location


def _none(key: str) -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class UploaderSettings:
    """The facts that the uploader needs. `storage` is None if the local tree is the storage.

    `is_record(key)` selects the small files that are always uploaded, `is_remade(key)` those of
    them that every restore rewrites; `artifacts` adds all other files. Names in `private` in the
    experiment's folder, and those in `private_inside` in a trial's, are never uploaded as files,
    nor are a trial's checkpoints (folders with `is_checkpoint(name)`). `disk_deadline_s` is how
    long a call may wait for the disk, 0 for no deadline. `claimed` is the claim that an earlier
    uploader of this incarnation made, None if there is none.

    `node` names the node whose keeper this is; "" for the owner, the controller's. A node's keeper
    has the storage and the claim of the owner. `shared` is the owner's tree as nodes see it, if
    that tree is the storage: nodes write there, so the owner claims it. `on_nodes`: trials run on
    nodes, which send the trials' own files.
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
    claimed: Claim | None = None
    node: str = ""
    shared: Location | None = None
    on_nodes: bool = False

    def is_ours(self, key: str, *, is_folder: bool) -> bool:
        """Whether the file or folder is uploaded in another way, or is for holdfast only."""
        above, _, name = key.rpartition("/")
        if name[0] == "." and is_leftover(name):
            return True
        if not above:
            return name in (*self.private, self.journal, self.head, INDEX_NAME, ENDED_NAME)
        if "/" in above:
            return False
        if name in (*self.private_inside, INDEX_NAME, LISTING_NAME):
            return True
        if self.node and self.is_remade(key):
            return True  # the controller writes the records, from the journal
        return is_folder and self.is_checkpoint(name)
