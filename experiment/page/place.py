"""The place that a page shows: one experiment, or a directory or bucket of several."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.experiment.folder.settings import Settings
from holdfast.experiment.page.followed import FollowedExperiment


class Place:
    """All methods block, and may be called from several threads.

    `path` is a directory or URI that holds experiments, or an experiment; None for the place where
    `fit()` keeps them. `now` is in seconds since 1970.
    """

    def __init__(self, path: str | None, settings: Settings, environ: Mapping[str, str]) -> None:
        """Raises ExperimentNotFound if there is no such place, InvalidLocation, StorageError."""
        self.public = ""
        """The place without credentials."""
        self.single: str | None = None
        """The key of the experiment if `path` is one, else None."""

    def listing(self, *, now: float) -> dict[str, Any]:
        """The answer of api/experiments. An experiment whose records have not changed is not read
        again. Raises ExperimentNotFound, StorageError."""
        raise NotImplementedError

    def sizes(self) -> dict[str, int | None]:
        """The bytes of all files of each experiment by key; None if they cannot be counted.

        Walks all files: ask once for a page. Raises ExperimentNotFound, StorageError.
        """
        raise NotImplementedError

    def experiment(self, key: str) -> FollowedExperiment:
        """The experiment with this key; the same object each time, while it is in use.

        Raises ExperimentNotFound for a key that the place does not list or that cannot be read,
        StorageError, OSError.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Forget all experiments."""
