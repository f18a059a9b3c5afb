"""Runs a sweep file: as `Tuner(...).fit(resume="auto")` of what it describes."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.dataclass import dataclass
from holdfast.experiment.folder.settings import Settings
from holdfast.experiment.records.place import address_of
from holdfast.experiment.worker.command.attempt import python_of
from holdfast.experiment.worker.command.words import Facts, words_of
from holdfast.sweep.node import Node, with_setting
from holdfast.sweep.reading import read_file, setting
from holdfast.sweep.settings import Sweep, sweep_of
from holdfast.trial.domains import Domain
from holdfast.trial.space import grid_values

if TYPE_CHECKING:
    from holdfast.experiment.results.result_grid import ResultGrid


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedSweep:
    """A sweep and the file that describes it; `path` is the experiment's."""

    sweep: Sweep
    path: str
    suffix: str
    content: bytes

    def fit(self, *, resume: str, extend: bool) -> ResultGrid:
        """Run or resume it. Raises the errors of Tuner and fit."""
        import holdfast
        from holdfast.experiment.api.tuner import Tuner

        sweep = self.sweep
        if sweep.cluster is not None:
            holdfast.init(cluster=sweep.cluster)
        tuner = Tuner(
            sweep.trainable,
            param_space=sweep.space,
            tune_config=sweep.tune,
            run_config=sweep.run,
        ).with_record(f"sweep{self.suffix}", self.content)
        return tuner.fit(resume=resume, extend=extend)

    def examples(self, count: int) -> list[str]:
        """The commands of some random configs, as in a shell."""
        trainable = self.sweep.trainable
        environ = {**os.environ, **trainable.env}
        facts = Facts(
            program=trainable.program,
            here=trainable.here,
            config_file="$HOLDFAST_CONFIG",
            interpreter=python_of(environ),
            environ=environ,
        )
        configs = [_drawn(self.sweep.space) for _ in range(count)]
        words = [words_of(trainable.words, config, facts) for config in configs]
        return list(dict.fromkeys(map(shlex.join, words)))


def open_sweep(
    path: Path, settings: Settings, *, sets: Sequence[str], given: Mapping[str, Any]
) -> OpenedSweep:
    """Read and check a sweep file. `sets` are KEY=VALUE, `given` replaces values of the file.

    Raises InvalidConfig.
    """
    node, content = read_file(path)
    for text in sets:
        names, value = setting(text)
        node = with_setting(node, names, value)
    for name, value in given.items():
        if value is not None:
            if name == "num_samples" and "run_cap" in node.table():
                name = "run_cap"  # the word of the file
            node = with_setting(node, [name], Node(value=value, file="command line"))
    sweep = sweep_of(node, path.absolute().parent)
    storage = sweep.run.storage_path
    if storage is not None and "://" not in storage:
        below = path.absolute().parent if given.get("storage_path") is None else Path.cwd()
        storage = os.path.normpath(below / os.path.expanduser(storage))
        sweep = replace(sweep, run=replace(sweep.run, storage_path=storage))
    suffix = ".yaml" if path.suffix.lower() == ".yml" else path.suffix.lower()
    found, _ = address_of(sweep.run, None, settings)
    return OpenedSweep(sweep=sweep, path=found, suffix=suffix, content=content)


def _drawn(space: Any) -> Any:
    """A random config."""
    if (values := grid_values(space)) is not None:
        return values[0]
    if isinstance(space, Mapping):
        return {name: _drawn(value) for name, value in space.items()}
    return space.sample() if isinstance(space, Domain) else space
