"""The names of trials and of their folders, by default or by functions of the user's."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.trial.errors import InvalidConfig

_LONGEST_NAME = 180
_UNSAFE = re.compile(r"[^\w.,=+-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedTrial:
    """The argument of name creators: a trial that is about to be created."""

    trial_id: str
    trainable_name: str
    config: Mapping[str, Any]
    evaluated_params: Mapping[str, Any]
    experiment_tag: str

    def __str__(self) -> str:
        return f"{self.trainable_name}_{self.trial_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Naming:
    """The user's functions that name trials and their folders; each gets a `ProposedTrial`."""

    trial: Callable[[Any], str] | None = None
    directory: Callable[[Any], str] | None = None

    @property
    def chooses(self) -> bool:
        return self.trial is not None or self.directory is not None

    def name_of(self, proposed: ProposedTrial) -> str:
        if self.trial is None:
            return str(proposed)
        return _checked(self.trial(proposed), "trial_name_creator")

    def dirname_of(self, proposed: ProposedTrial, name: str, stamp: str) -> str:
        """`name` is the trial's; `stamp` ends the folder's default name."""
        if self.directory is None:
            return _folder(f"{name}_{proposed.experiment_tag}") + stamp
        return _folder(_checked(self.directory(proposed), "trial_dirname_creator"))


def _checked(name: object, creator: str) -> str:
    if not isinstance(name, str) or not name.strip("./"):
        raise InvalidConfig(f"{creator} must return a non-empty string, not {name!r}")
    return name


def _folder(name: str) -> str:
    """`name` as a folder's name that every file system accepts: their limits are in bytes."""
    return _UNSAFE.sub("_", name).encode()[:_LONGEST_NAME].decode(errors="ignore")
