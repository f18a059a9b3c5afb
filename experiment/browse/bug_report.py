"""The facts that a bug report needs about this machine and an experiment.

It has no config, metric or output of a trial, and no value of an environment variable. The
messages and tracebacks of failures are there, without credentials, and with the home directory as
`~`.
"""

from __future__ import annotations

import os
import platform
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from importlib.metadata import distributions, version
from typing import Any, Final

from holdfast.experiment.browse.locate import find
from holdfast.experiment.browse.overview import failure_causes, overview
from holdfast.experiment.doctor.target import find_target
from holdfast.experiment.doctor.verify import Depth, verify
from holdfast.experiment.folder.settings import Settings
from holdfast.experiment.records.journal import read_events
from holdfast.experiment.records.view import ExperimentView
from holdfast.runtime.fleet.facts import detect_total
from holdfast.schema import UnreadableRecord
from holdfast.syncer.errors import redact

_EVENTS: Final = 40
_CAUSES: Final = 5
_VARIABLES: Final = ("HOLDFAST_", "RAY_", "TUNE_", "SLURM_", "OMP_", "PYTHON")
_OF_OVERVIEW: Final = (
    *("state", "active_s", "run", "restores", "ending", "counts", "stop_reasons"),
    *("not_created", "notices"),
)


def bug_report(
    path: str | None, settings: Settings, environ: Mapping[str, str], now: float
) -> dict[str, Any]:
    """The facts as JSON values; without a `path` only those of this machine.

    Raises what `find` and `find_target` raise.
    """
    facts: dict[str, Any] = {"machine": _machine(environ)}
    if path is not None:
        found = find(path, settings, environ)
        checked = verify(find_target(path, None, settings, environ), depth=Depth.QUICK)
        facts["experiment"] = _experiment(found, now)
        facts["findings"] = [asdict(finding) for finding in checked.findings]
    return {name: _cleaned(value, os.path.expanduser("~")) for name, value in facts.items()}


def _machine(environ: Mapping[str, str]) -> dict[str, Any]:
    return {
        "holdfast": version("holdfast"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "resources": detect_total(),
        "variables": sorted(name for name in environ if name.startswith(_VARIABLES)),
        "packages": dict(sorted((one.metadata["Name"], one.version) for one in distributions())),
    }


def _experiment(found: ExperimentView, now: float) -> dict[str, Any]:
    facts, spec = asdict(overview(found, now=now)), found.machine.spec
    return {
        **{name: facts[name] for name in _OF_OVERVIEW},
        "scheduler": spec.scheduler,
        "storage": found.storage.partition("://")[0],
        "options": sorted(spec.options),
        "failures": [
            {"kind": one.failure.kind, "trials": one.trials, "traceback": _traceback(found, one)}
            for one in failure_causes(found)[:_CAUSES]
        ],
        **_records(found),
    }


def _traceback(found: ExperimentView, cause: Any) -> str:
    error = found.machine.trials[cause.trial_id].error
    return "" if error is None else error.traceback or error.headline


def _records(found: ExperimentView) -> dict[str, Any]:
    """The number of records of each kind in the journal on this machine, and the last of them
    with the seconds since the beginning."""
    counts: Counter[str] = Counter()
    last: deque[str] = deque(maxlen=_EVENTS)
    if found.layout is not None:
        for kind, now in _kinds(found):
            counts[kind] += 1
            last.append(f"{now - found.began_at:.3f} s: {kind}")
    return {"records": counts, "last_records": last}


def _kinds(found: ExperimentView) -> Iterator[tuple[str, float]]:
    assert found.layout is not None
    try:
        for record, _ in read_events(found.layout.journal):
            yield type(record.event).__name__, record.now
    except UnreadableRecord as error:
        yield f"unreadable: {error}", 0.0


def _cleaned(value: Any, home: str) -> Any:
    """The value with text that others may read."""
    if isinstance(value, str):
        return redact(value).replace(home, "~")
    if isinstance(value, Mapping):
        return {name: _cleaned(item, home) for name, item in value.items()}
    if isinstance(value, (list, tuple, deque)):
        return [_cleaned(item, home) for item in value]
    return value
