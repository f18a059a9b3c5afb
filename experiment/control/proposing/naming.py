"""Makes trials of configs: their names, folders and resources, by default or by functions of the
user's."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.experiment.control.proposing.config_forms import ConfigForms
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.resources import PlacementGroupFactory
from holdfast.trial.search_space.variants import Variant
from holdfast.trial.trial import TrialSpec
from holdfast.trial.values import format_tag

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


Resources = PlacementGroupFactory | Callable[[dict[str, Any]], PlacementGroupFactory]


class TrialMaker:
    """Makes the trials of an experiment in the folder `root`. `taken` are names of folders that
    are in use; `stamp` returns the end of a folder's name."""

    def __init__(
        self,
        trainable: str,
        forms: ConfigForms,
        naming: Naming,
        resources: Resources,
        *,
        root: Path,
        taken: set[str],
        stamp: Callable[[], str],
    ) -> None:
        self._trainable, self._forms = trainable, forms
        self._naming, self._resources = naming, resources
        self._root, self._dirnames, self._stamp = root, taken, stamp

    @property
    def runs_user_code(self) -> bool:
        return not isinstance(self._resources, PlacementGroupFactory) or self._naming.chooses

    def make(self, trial_id: str, variant: Variant) -> TrialSpec:
        """A trial with this config. Raises what the user's functions raise, and NotPicklable."""
        config = self._forms.kept(variant.config)
        tag = format_tag(variant.index, variant.evaluated)
        proposed = ProposedTrial(
            trial_id=trial_id,
            trainable_name=self._trainable,
            config=self._forms.folded(variant.config),
            evaluated_params=variant.evaluated,
            experiment_tag=tag,
        )
        name = self._naming.name_of(proposed)
        dirname = self._naming.dirname_of(proposed, name, self._stamp())
        if self._naming.chooses and self._is_taken(dirname):
            # Two trials in one folder would overwrite each other.
            dirname = f"{dirname}_{trial_id}"
        self._dirnames.add(dirname)
        return TrialSpec(
            trial_id=trial_id,
            index=variant.index,
            name=name,
            dirname=dirname,
            config=config,
            tag=tag,
            resources=self._request(config),
        )

    def _is_taken(self, dirname: str) -> bool:
        return dirname in self._dirnames or (self._root / dirname).exists()

    def _request(self, config: dict[str, Any]) -> PlacementGroupFactory:
        if isinstance(self._resources, PlacementGroupFactory):
            return self._resources
        return self._resources(self._forms.users(config))


def _checked(name: object, creator: str) -> str:
    if not isinstance(name, str) or not name.strip("./"):
        raise InvalidConfig(f"{creator} must return a non-empty string, not {name!r}")
    return name


def _folder(name: str) -> str:
    """`name` as a folder's name that every file system accepts: their limits are in bytes."""
    return _UNSAFE.sub("_", name).encode()[:_LONGEST_NAME].decode(errors="ignore")
