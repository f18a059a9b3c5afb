"""One experiment that is read once and then followed, as its page needs it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.trial.errors import InvalidConfig


class NotThere(InvalidConfig):
    """The experiment has no such trial, file or checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The state after a look.

    `version` grows with each change of a trial, and `facts` with each change of the facts; both
    are larger than those of all earlier processes that showed this experiment. `is_live`: a
    process runs it, so that there may be more to see.
    """

    version: int
    facts: int
    is_live: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Download:
    """A file to send: `pieces` are read while they are sent.

    `name` is a name for the user's folder of downloads. `media_type` is that of an image that a
    browser may show, "" for everything else. `size_bytes` is None if it is not known.
    """

    name: str
    media_type: str
    size_bytes: int | None
    pieces: Iterator[bytes]


class FollowedExperiment:
    """All methods block, and may be called from several threads: each has its turn.

    Those that read files of the experiment raise NotThere for what it does not have,
    LeadsElsewhere or NotRegular for what is not a plain file in it, StorageError and OSError.
    """

    key: str
    version: int

    def look(self) -> Change:
        """Read what is new: costs a stat of the journal if nothing is. At most once a second does
        it look at all (in storage, every 5 s); otherwise it returns the state of the last look.

        Raises ExperimentNotFound once the experiment has been deleted, StorageError, OSError; the
        state before stays.
        """
        raise NotImplementedError

    def facts(self) -> dict[str, Any]:
        """The answer of api/e/KEY: as of the last look, except `now`."""
        raise NotImplementedError

    def trials(self) -> dict[str, Any]:
        """The answer of api/e/KEY/trials."""
        raise NotImplementedError

    def changed_since(self, version: int) -> dict[str, Any] | None:
        """The event `trials`: those that have changed since this version, perhaps none.

        None if the page must read everything again (the event `reset`): the version is of another
        run of this name, or of records that no longer exist.
        """
        raise NotImplementedError

    def rows(
        self, trials: Sequence[tuple[str, int]], metrics: Sequence[str], points: int
    ) -> dict[str, Any]:
        """The answer of api/e/KEY/rows; each trial's id with the iteration after which rows are
        wanted (0: all). A trial whose rows cannot be read is in `missing`, and no error."""
        raise NotImplementedError

    def trial(self, trial_id: str) -> dict[str, Any]:
        """The answer of api/e/KEY/t/ID."""
        raise NotImplementedError

    def log(self, trial_id: str, name: str, offset: int) -> dict[str, Any]:
        """The answer of api/e/KEY/t/ID/log/NAME."""
        raise NotImplementedError

    def artifact(self, trial_id: str, path: str) -> Download:
        """A file of the trial, by its path in the trial's folder."""
        raise NotImplementedError

    def checkpoint_tar(self, trial_id: str, dirname: str) -> Download:
        """A checkpoint of the trial as a tar archive."""
        raise NotImplementedError

    def importance(self, metric: str) -> dict[str, Any]:
        """The answer of api/e/KEY/importance. Raises InvalidConfig if it cannot be computed, with
        the reason."""
        raise NotImplementedError

    def scheduler(self) -> Mapping[str, Any]:
        """The answer of api/e/KEY/scheduler."""
        raise NotImplementedError

    @property
    def local_root(self) -> str | None:
        """The experiment's tree on this machine, where a live run has its control socket; None if
        this machine has none."""
        raise NotImplementedError
