"""What a tracker process is started with."""

from __future__ import annotations

from holdfast.dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackerJob:
    """`name` and `file` are those of one tracker, `tracker` is pickled, and `secrets` are its
    attributes that no pickle holds; all else is the same for every tracker of an experiment. It
    goes over the process's socket."""

    root: str
    experiment_id: str
    trainable: str
    experiment_path: str
    begins: int
    samples: int | None = None
    total_samples: int | None = None
    name: str = ""
    file: str = ""
    tracker: bytes = b""
    secrets: bytes = b""
