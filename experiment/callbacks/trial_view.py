"""The views of trials for users' callbacks, reporters and name creators.

A `TrialView` has the attribute names of Ray's Trial. It stays the same object while the frozen
`Trial` behind it is replaced, so users can keep state in dicts keyed by trial.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import Any, ClassVar, Final

from holdfast.dataclass import dataclass
from holdfast.experiment.folder.layout import ERROR, Layout
from holdfast.experiment.records.rows import newest_row
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.trial.config import RunConfig
from holdfast.trial.errors import Failure
from holdfast.trial.resources import PlacementGroupFactory
from holdfast.trial.scaling import ScalingConfig
from holdfast.trial.search_space.description import text_of
from holdfast.trial.trial import CheckpointRecord, Status, Stop, Trial, TrialSpec
from holdfast.trial.values import (
    LONGEST_WHOLE_TAG,
    Opaque,
    Ref,
    key_name,
    named_in_tag,
    readable,
    spread,
)

_SCALARS: Final = (bool, int, float, str, type(None))


class Searched:
    """Finds the varied parameters of trials, given the description of the search space.

    Those are the parameters that the space varies, and those that are not in it: a search
    algorithm may have a space of its own. A trial's tag has only as many as fit into it.
    """

    def __init__(self, space: Sequence[Mapping[str, Any]] = ()) -> None:
        names = [(key_name(tuple(part["path"])), part) for part in space]
        self._heads: Final = [name for name, part in names if part["varied"]]
        self._fixed: Final = {name: part["text"] for name, part in names if not part["varied"]}

    def of(self, trial: Trial) -> dict[str, Any]:
        """The parameters with their current values. The user's objects are shown as text.

        If a scheduler has replaced a parameter by a dict, or a dict by something else, the values
        that are now in that place.
        """
        return {
            name: readable(value) if isinstance(value, (Ref, Opaque)) else value
            for name, value in self._found(trial).items()
        }

    def _found(self, trial: Trial) -> dict[str, Any]:
        spec, now = trial.spec, spread(trial.config)
        if self._heads or self._fixed or len(spec.tag) > LONGEST_WHOLE_TAG:
            return {name: value for name, value in now.items() if self._is_varied(name, value)}
        # Records without a space, and a tag from which nothing was left out.
        named = named_in_tag(spec.tag, spec.index, spec.config)
        if not trial.changed_config:
            return named
        return {known: now[known] for name in named for known in now if _is_same(known, name)}

    def _is_varied(self, name: str, value: Any) -> bool:
        if _overlaps(name, self._heads):
            return True
        if name in self._fixed:  # a search algorithm or a scheduler may have replaced the value
            return type(value) in _SCALARS and text_of(value) != self._fixed[name]
        return not _overlaps(name, self._fixed)


def _overlaps(name: str, others: Iterable[str]) -> bool:
    return any(_is_same(name, other) for other in others)


def _is_same(one: str, other: str) -> bool:
    """True if they are the same parameter, or one contains the other."""
    return one == other or one.startswith(f"{other}/") or other.startswith(f"{one}/")


# Users compare with Ray's five states: holdfast's states in between are shown as a neighbouring
# one.
_SHOWN_STATUS = {Status.STARTING: Status.PENDING, Status.STOPPING: Status.RUNNING}


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The facts that a view shows in addition to the record of its trial.

    `experiment_path` is the experiment's folder in storage, `local_experiment_path` the one on
    this machine. `config_of` returns the configuration with the user's own values, `row_of` the
    full row of the last report, `checkpoint_of` a public Checkpoint. `searched` finds the varied
    parameters. `run_id` and `run_config` are those of the run; `scaling_of` returns the
    ScalingConfig of a config of a training.
    """

    trainable_name: str
    experiment_path: str
    local_experiment_path: str
    config_of: Callable[[Trial], Mapping[str, Any]]
    row_of: Callable[[Trial], dict[str, Any]]
    checkpoint_of: Callable[[TrialSpec, CheckpointRecord], Checkpoint]
    searched: Searched = field(default_factory=Searched)
    run_id: str = ""
    run_config: RunConfig | None = None
    scaling_of: Callable[[Mapping[str, Any]], ScalingConfig] | None = None

    @classmethod
    def of(
        cls,
        layout: Layout,
        *,
        trainable_name: str,
        experiment_path: str,
        config_of: Callable[[Trial], Mapping[str, Any]],
        space: Sequence[Mapping[str, Any]] = (),
        **more: Any,
    ) -> Surroundings:
        """Those of the experiment that runs in the folder of `layout`."""
        return cls(
            trainable_name=trainable_name,
            experiment_path=experiment_path,
            local_experiment_path=str(layout.root),
            config_of=config_of,
            row_of=newest_row,
            checkpoint_of=lambda spec, known: Checkpoint(str(layout.checkpoint(spec, known))),
            searched=Searched(space),
            **more,
        )


class TrialView:
    """A trial as users of Ray know it. Equal and hashed by `trial_id`; created by `Views`."""

    PENDING: ClassVar[str] = "PENDING"
    RUNNING: ClassVar[str] = "RUNNING"
    PAUSED: ClassVar[str] = "PAUSED"
    TERMINATED: ClassVar[str] = "TERMINATED"
    ERROR: ClassVar[str] = "ERROR"

    def __init__(self, trial: Trial, surroundings: Surroundings) -> None:
        self._trial = trial
        self._surroundings = surroundings
        self._row: dict[str, Any] = {}
        # Of the newest attempt that failed; set before the hooks about failures are called.
        self.failure: Failure | None = None
        self._row_shows: Mapping[str, Any] | None = None

    def show(self, trial: Trial) -> None:
        """Show a later state of the trial."""
        self._trial = trial

    @property
    def trial_id(self) -> str:
        """Its id, as in `d2a66_00000`."""
        return self._trial.trial_id

    @property
    def trainable_name(self) -> str:
        """The name of the trainable, which begins the name of the trial."""
        return self._surroundings.trainable_name

    @cached_property
    def config(self) -> dict[str, Any]:
        """The configuration as the trainable gets it."""
        return dict(self._surroundings.config_of(self._trial))

    @cached_property
    def evaluated_params(self) -> dict[str, Any]:
        """The varied parameters, named as in `net/width`; `config` has the user's objects."""
        return self._surroundings.searched.of(self._trial)

    @property
    def experiment_tag(self) -> str:
        """The trial's tag, as in `0_lr=0.1`."""
        return self._trial.spec.tag

    @property
    def confirms(self) -> str:
        """The id of the trial whose config it runs again; "" for others."""
        return self._trial.spec.confirms

    @property
    def experiment_dir_name(self) -> str:
        """The name of the experiment's folder."""
        return os.path.basename(self._surroundings.local_experiment_path)

    @property
    def status(self) -> str:
        """PENDING, RUNNING, PAUSED, TERMINATED or ERROR."""
        status = self._trial.shown_status
        return _SHOWN_STATUS.get(status, status).value

    @property
    def stop(self) -> Stop | None:
        """Why it ends or has ended without an error; None before that."""
        return self._trial.stop

    @property
    def last_result(self) -> dict[str, Any]:
        """The full row of the newest report; empty before the first."""
        if self._trial.row is None:
            return {}
        if self._row_shows is not self._trial.row:
            self._row, self._row_shows = self._surroundings.row_of(self._trial), self._trial.row
        return self._row

    @property
    def reported(self) -> dict[str, Any]:
        """The metrics of the newest report, as the trial passed them; empty before the first."""
        return dict(self._trial.row or {})

    @property
    def iteration(self) -> int:
        """The number of its newest report."""
        return self._trial.iteration

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The newest Checkpoint, or None."""
        newest = self._trial.newest_checkpoint
        return self._surroundings.checkpoint_of(self._trial.spec, newest) if newest else None

    def has_checkpoint(self) -> bool:
        """True if it has a checkpoint."""
        return self._trial.newest_checkpoint is not None

    def is_finished(self) -> bool:
        """True if it is TERMINATED or ERROR."""
        return self._trial.status.is_final

    @property
    def path(self) -> str:
        """The trial's folder in storage."""
        return f"{self._surroundings.experiment_path}/{self._trial.spec.dirname}"

    @property
    def local_path(self) -> str:
        """The trial's folder on this machine."""
        return os.path.join(self._surroundings.local_experiment_path, self._trial.spec.dirname)

    @property
    def logdir(self) -> str:
        """Older name of `local_path`."""
        return self.local_path

    @property
    def local_experiment_path(self) -> str:
        """The experiment's folder on this machine."""
        return self._surroundings.local_experiment_path

    @property
    def local_dir(self) -> str:
        """Older name of `local_experiment_path`."""
        return self._surroundings.local_experiment_path

    def init_local_path(self) -> None:
        """Create `local_path` if necessary, for a callback that runs before the worker."""
        os.makedirs(self.local_path, exist_ok=True)

    @property
    def num_failures(self) -> int:
        """How many of its attempts have failed."""
        return self._trial.failures

    @property
    def error_file(self) -> str | None:
        """The path of the file with the traceback; None for a trial that never failed."""
        if not self._trial.failures and self._trial.error is None:
            return None
        return os.path.join(self.local_path, ERROR)

    @property
    def node_ip(self) -> str:
        """The address of the machine that runs it; empty before its worker has started."""
        return self._trial.place.node_ip

    @property
    def node(self) -> str:
        """The name of the node that it runs on, or ran on last; empty on this machine."""
        return self._trial.place.node

    @property
    def surroundings(self) -> Surroundings:
        """The facts about its run."""
        return self._surroundings

    @property
    def placement_group_factory(self) -> PlacementGroupFactory:
        """The resources that it requests."""
        return self._trial.spec.resources

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TrialView) and self.trial_id == other.trial_id

    def __hash__(self) -> int:
        return hash(self._trial.trial_id)

    def __str__(self) -> str:
        return self._trial.spec.name or f"{self.trainable_name}_{self.trial_id}"

    def __repr__(self) -> str:
        return str(self)


class Views:
    """One view per trial, in the order of the trials.

    For one thread: two threads that look at different moments of a run each have their own
    registry, and their views of a trial are equal.
    """

    def __init__(self, surroundings: Surroundings) -> None:
        self.surroundings = surroundings
        self.trials: list[TrialView] = []
        self._by_id: dict[str, TrialView] = {}

    def show(self, trial: Trial) -> TrialView:
        """The view of this trial, updated to `trial`."""
        view = self._by_id.get(trial.trial_id)
        if view is None:
            view = self._by_id[trial.trial_id] = TrialView(trial, self.surroundings)
            self.trials.append(view)
        view.show(trial)
        return view

    def get(self, trial_id: str) -> TrialView | None:
        """The view of the trial with this id; None if none was shown."""
        return self._by_id.get(trial_id)
