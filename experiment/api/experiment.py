"""`Experiment`: what `tune.run` runs, as a value."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Self

from holdfast.experiment.folder.settings import Settings
from holdfast.experiment.worker import wrap
from holdfast.experiment.worker.train_loop import TrainLoop
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.trial.config import CheckpointConfig, FailureConfig, RunConfig, SyncConfig
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.resources import PlacementGroupFactory
from holdfast.trial.stopper import Stopper
from holdfast.trial.tuning import TuneConfig
from holdfast.unknown_keywords import explains_keywords

if TYPE_CHECKING:
    from holdfast.experiment.records.place import ExperimentPlace

# Older names of the parts of a CheckpointConfig.
_CHECKPOINT_WORDS: Final = (
    "keep_checkpoints_num",
    "checkpoint_score_attr",
    "checkpoint_freq",
    "checkpoint_at_end",
)


@explains_keywords
class Experiment:
    """A trainable with its search space and settings, for `tune.run` and `tune.run_experiments`.

    The parameters are those of `tune.run`. Raises InvalidConfig.
    """

    def __init__(
        self,
        name: str | None,
        run: Any,
        *,
        stop: Any = None,
        time_budget_s: Any = None,
        config: Mapping[str, Any] | None = None,
        resources_per_trial: Any = None,
        num_samples: int = 1,
        storage_path: str | os.PathLike[str] | None = None,
        storage_filesystem: Any = None,
        sync_config: SyncConfig | Mapping[str, Any] | None = None,
        checkpoint_config: CheckpointConfig | Mapping[str, Any] | None = None,
        trial_name_creator: Any = None,
        trial_dirname_creator: Any = None,
        log_to_file: Any = False,
        export_formats: Sequence[str] | str | None = None,
        max_failures: int = 0,
        restore: str | os.PathLike[str] | Checkpoint | None = None,
        local_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        if config is not None and not isinstance(config, Mapping):
            raise InvalidConfig(f"config must be a dict, not {config!r:.100}")
        self.run_identifier = run if isinstance(run, str) else self.get_trainable_name(run)
        self.trainable = _bound(run, resources_per_trial, export_formats, restore)
        self.config = dict(config or {})
        self.tune_config = TuneConfig(
            num_samples=num_samples,
            time_budget_s=time_budget_s,
            trial_name_creator=trial_name_creator,
            trial_dirname_creator=trial_dirname_creator,
        )
        self.run_config = RunConfig(
            name=name,
            storage_path=storage_path,
            local_dir=local_dir,
            storage_filesystem=storage_filesystem,
            sync_config=_made(SyncConfig, sync_config, "sync_config"),
            checkpoint_config=_made(CheckpointConfig, checkpoint_config, "checkpoint_config"),
            failure_config=FailureConfig(max_failures=max_failures),
            stop=stop,
            log_to_file=log_to_file or False,
        )

    @classmethod
    def from_json(cls, name: str, spec: Mapping[str, Any]) -> Self:
        """The experiment of a dict such as `{"run": train, "stop": {...}, "config": {...}}`.

        Raises InvalidConfig, and TypeError for an unknown key.
        """
        if not isinstance(spec, Mapping) or "run" not in spec:
            raise InvalidConfig(
                f"the experiment {name!r} must be a dict with 'run', the trainable, not "
                f"{spec!r:.100}"
            )
        given = dict(spec)
        if "env" in given:  # the older place of a parameter that RLlib has
            given["config"] = {**given.get("config", {}), "env": given.pop("env")}
        words = {word: given.pop(word) for word in _CHECKPOINT_WORDS if word in given}
        if words:
            made = _made(CheckpointConfig, given.get("checkpoint_config"), "checkpoint_config")
            given["checkpoint_config"] = _with_words(made, **words)
        return cls(name, given.pop("run"), **given)

    @classmethod
    def get_trainable_name(cls, run_object: Any) -> str:
        """The name of a trainable in the names of its trials. Raises InvalidConfig."""
        if isinstance(run_object, str):
            return run_object
        return wrap.name_of(wrap.find_trainable(run_object))

    @classmethod
    def register_if_needed(cls, run_object: Any) -> str:
        """Register a trainable that is not a registered name. Returns its name."""
        name = cls.get_trainable_name(run_object)
        if not isinstance(run_object, str):
            wrap.register_trainable(name, wrap.find_trainable(run_object))
        return name

    @property
    def name(self) -> str | None:
        """The name of its folder; None for one made when it starts."""
        return self.run_config.name

    @property
    def stopper(self) -> Stopper | None:
        """`stop`, if it is a Stopper."""
        stop = self.run_config.stop
        return stop if isinstance(stop, Stopper) else None

    @property
    def checkpoint_config(self) -> CheckpointConfig:
        """That of its RunConfig."""
        return self.run_config.checkpoint_config

    @property
    def public_spec(self) -> dict[str, Any]:
        """What search algorithms and schedulers get to know of it."""
        stop = self.run_config.stop
        return {
            "stop": dict(stop) if isinstance(stop, Mapping) else {},
            "num_samples": self.tune_config.num_samples,
            "time_budget_s": self.tune_config.time_budget_s,
        }

    @property
    def path(self) -> str | None:
        """Its folder in storage, on `storage_filesystem`; None before it has a name."""
        return self._place.location.path if self._place else None

    @property
    def remote_path(self) -> str | None:
        """The same as `path`."""
        return self.path

    @property
    def local_path(self) -> str | None:
        """Its folder on this machine; None before it has a name."""
        return str(self._place.layout.root) if self._place else None

    @property
    def _place(self) -> ExperimentPlace | None:
        from holdfast.experiment.records.place import find_place

        run, settings = self.run_config, Settings.read(os.environ)
        if run.name is None:
            return None
        return find_place(run.storage_path, run.storage_filesystem, run.name, settings, os.environ)

    def __repr__(self) -> str:
        return f"Experiment({self.name!r}, {self.run_identifier})"


def experiments_in(given: Any) -> list[Experiment]:
    """The experiments in an Experiment, a dict of specs by name, or a list of these.

    Raises InvalidConfig.
    """
    if isinstance(given, Experiment):
        return [given]
    if isinstance(given, Mapping):
        return [Experiment.from_json(name, spec) for name, spec in given.items()]
    if isinstance(given, (list, tuple)):
        return [one for part in given for one in experiments_in(part)]
    raise InvalidConfig(
        f"experiments must be a tune.Experiment, a dict such as {{'name': {{'run': train}}}}, or "
        f"a list of them, not {given!r:.100}"
    )


def _with_words(
    config: CheckpointConfig,
    keep_checkpoints_num: int | None = None,
    checkpoint_score_attr: str | None = None,
    checkpoint_freq: int = 0,
    checkpoint_at_end: bool = False,
) -> CheckpointConfig:
    """The CheckpointConfig with what the older arguments say. Raises InvalidConfig."""
    changes: dict[str, Any] = {}
    if keep_checkpoints_num is not None:
        changes["num_to_keep"] = keep_checkpoints_num
    if checkpoint_score_attr is not None:
        is_min = checkpoint_score_attr.startswith("min-")
        changes["checkpoint_score_attribute"] = checkpoint_score_attr.removeprefix("min-")
        changes["checkpoint_score_order"] = "min" if is_min else "max"
    if checkpoint_freq:
        changes["checkpoint_frequency"] = checkpoint_freq
    if checkpoint_at_end:
        changes["checkpoint_at_end"] = True
    return replace(config, **changes)


def _bound(run: Any, resources: Any, exports: Any, restore: Any) -> Any:
    """The trainable with its resources, exports and first checkpoint. Raises InvalidConfig."""
    trainable = wrap.find_trainable(run)
    if exports:
        trainable = _exporting(trainable, [exports] if isinstance(exports, str) else exports)
    start = None if restore is None else _checkpoint_at(restore)
    if isinstance(trainable, TrainLoop):
        if resources is not None:
            raise InvalidConfig(
                "resources_per_trial: the workers of a trainer get those of its ScalingConfig, "
                "such as ScalingConfig(num_workers=2, use_gpu=True)"
            )
        return trainable if start is None else replace(trainable, start=start)
    if resources is not None:
        trainable = wrap.with_resources(trainable, _amounts(resources))
    return trainable if start is None else wrap.with_start(trainable, start)


def _exporting(trainable: Any, formats: Sequence[str]) -> Any:
    if not isinstance(trainable, type):
        raise InvalidConfig(
            "export_formats are for a Trainable class, whose export_model() each trial calls when "
            "it is done; a function exports its model itself"
        )
    return wrap.with_exports(trainable, formats)


def _checkpoint_at(restore: Any) -> Checkpoint:
    """Raises DirectoryMissing for a folder that does not exist."""
    if isinstance(restore, Checkpoint):
        return restore
    return Checkpoint.from_directory(os.path.expanduser(restore))


def _amounts(resources: Any) -> Any:
    """The resources with those under `custom_resources`, as older versions of Ray name them."""
    if callable(resources) and not isinstance(resources, PlacementGroupFactory):
        return lambda config: _amounts(resources(config))
    if isinstance(resources, Mapping) and "custom_resources" in resources:
        rest = {name: value for name, value in resources.items() if name != "custom_resources"}
        return {**rest, **(resources["custom_resources"] or {})}
    return resources


def _made(kind: type[Any], given: Any, name: str) -> Any:
    if given is None:
        return kind()
    if isinstance(given, Mapping):
        return kind(**given)
    if not isinstance(given, kind):
        raise InvalidConfig(f"{name} must be a {kind.__name__} or a dict, not {given!r:.100}")
    return given
