"""A claim on the storage of an experiment. Each incarnation that writes there creates one."""

from __future__ import annotations

import re
from collections.abc import Iterable

from holdfast.dataclass import dataclass
from holdfast.syncer.files.tree import CLAIMS

_NAME = re.compile(r"[0-9]{6,12}")


@dataclass(frozen=True, slots=True)
class Claim:
    """The claim with this number; the first is 1. A head stores its `key` as `epoch`."""

    number: int

    @property
    def key(self) -> str:
        """The key of its object in storage: `.epochs/000001`."""
        return f"{CLAIMS}/{self.number:06d}"

    @classmethod
    def parse(cls, key: str) -> Claim | None:
        """The claim with this key; None if it is not the key of a claim."""
        folder, _, name = key.rpartition("/")
        return cls(int(name)) if folder == CLAIMS and _NAME.fullmatch(name) else None

    @classmethod
    def newest(cls, keys: Iterable[str]) -> Claim | None:
        """The claim with the greatest number among these keys; None if there is none."""
        found = (cls.parse(key) for key in keys)
        return max(filter(None, found), key=lambda claim: claim.number, default=None)
