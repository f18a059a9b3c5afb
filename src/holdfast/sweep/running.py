"""Runs a sweep file: as `Tuner(...).fit(resume="auto")` of what it describes."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from holdfast.dataclass import dataclass
from holdfast.experiment.folder.settings import Settings
from holdfast.experiment.records.place import address_of
from holdfast.experiment.start.short_names import with_algorithms
from holdfast.experiment.worker.command.trainable import python_of
from holdfast.experiment.worker.command.words import Facts, words_of
from holdfast.sweep.reading import Node, read_file, setting, with_setting
from holdfast.sweep.settings import Sweep, below, sweep_of
from holdfast.trial.config import TuneConfig
from holdfast.trial.search_space.variants import Space

if TYPE_CHECKING:
    from holdfast.api.tuner import Tuner
    from holdfast.results.result_grid import ResultGrid
    from holdfast.scheduler.events import ExperimentSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedSweep:
    """A sweep and the file that describes it; `path` is the experiment's."""

    sweep: Sweep
    path: str
    suffix: str
    content: bytes

    def fit(self, *, resume: str, extend: bool, command: str) -> ResultGrid:
        """Run or resume it. `command` does it from any folder. Raises the errors of Tuner and
        fit."""
        import holdfast

        sweep = self.sweep
        if sweep.cluster is not None:
            holdfast.init(cluster=sweep.cluster)
        else:
            self.examples(1)  # refuses what no trial could run; nodes have their own environment
        tuner = self._tuner().with_record(f"sweep{self.suffix}", self.content, command)
        return tuner.fit(resume=resume, extend=extend)

    def is_as_said(self, spec: ExperimentSpec) -> bool:
        """True if a resume by this file would change and refuse nothing."""
        return self._tuner().is_as_said(spec)

    def _tuner(self) -> Tuner:
        from holdfast.api.tuner import Tuner

        sweep = self.sweep
        return Tuner(
            sweep.trainable,
            param_space=sweep.space,
            tune_config=sweep.tune,
            run_config=sweep.run,
        )

    @property
    def tune(self) -> TuneConfig:
        """That of the run: with what an automatic search chooses."""
        return with_algorithms(self.sweep.tune, self.sweep.space)[0]

    @property
    def trials(self) -> int | None:
        """The number of trials, None without a limit."""
        tune = self.tune
        if tune.search_alg is None:
            return Space(self.sweep.space).total(tune.num_samples)
        return None if tune.num_samples < 0 else tune.num_samples

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
        space = Space(self.sweep.space)
        configs = [space.variant(index, Random()).config for index in range(count)]
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
    if storage is not None:
        here = path.absolute().parent if given.get("storage_path") is None else Path.cwd()
        sweep = replace(sweep, run=replace(sweep.run, storage_path=below(here, storage)))
    suffix = ".yaml" if path.suffix.lower() == ".yml" else path.suffix.lower()
    found, _ = address_of(sweep.run, None, settings)
    return OpenedSweep(sweep=sweep, path=found, suffix=suffix, content=content)
