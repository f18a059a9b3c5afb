"""The data that starts a tracker process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.experiment.folder.layout import Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackerJob:
    """The start data of one tracker process, sent over its socket.

    `name`, `file` and `tracker` (pickled) are those of one tracker. `secrets` are its attributes
    that are never in a pickle; `target` is where it sends to, for messages. `space` describes the
    search space. Everything else is the same for all trackers of an experiment: `tags` are those
    of its RunConfig, `resume_command` is a run that delivers what is missing.
    """

    root: str
    experiment_id: str
    trainable: str
    experiment_path: str
    begins: int
    samples: int | None = None
    total_samples: int | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    space: Sequence[Mapping[str, Any]] = ()
    resume_command: str = ""
    name: str = ""
    file: str = ""
    tracker: bytes = b""
    secrets: bytes = b""
    target: str = ""

    @property
    def layout(self) -> Layout:
        return Layout(Path(self.root))
