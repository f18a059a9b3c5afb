"""`holdfast doctor preflight` and `report`: tests a storage and this machine, and collects facts.

The facts for a bug report have no config, metric or output of a trial, and no value of an
environment variable. The messages and tracebacks of failures are there, without credentials, and
with the home directory as `~`.
"""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from importlib.metadata import distributions, version
from pathlib import Path
from typing import Any, Final

from holdfast.dataclass import dataclass
from holdfast.experiment.folder.settings import Settings
from holdfast.experiment.records.journal import read_events
from holdfast.experiment.records.view import ExperimentView
from holdfast.results.doctor.verify import Depth, verify
from holdfast.results.overview import facts_as_json, failure_causes
from holdfast.results.reading import find, find_site
from holdfast.runtime.fleet.facts import detect_total
from holdfast.schema import UnreadableRecord
from holdfast.syncer.checkpoint.download import with_store
from holdfast.syncer.errors import StorageError, redact
from holdfast.syncer.stores.location import Location
from holdfast.syncer.stores.preflight import LARGE_BYTES, ProbeOutcome, Step, probe
from holdfast.syncer.uploader.lock import ExperimentLock
from holdfast.text.values import size

_EVENTS: Final = 40
_CAUSES: Final = 5
_VARIABLES: Final = ("HOLDFAST_", "RAY_", "TUNE_", "SLURM_", "OMP_", "PYTHON")
_OF_OVERVIEW: Final = (
    *("state", "active_s", "run", "restores", "ending", "counts", "stop_reasons"),
    *("not_created", "notices", "scheduler"),
)


def bug_report(
    path: str | None, settings: Settings, environ: Mapping[str, str], now: float
) -> dict[str, Any]:
    """The facts as JSON values; without a `path` only those of this machine.

    Raises what `find` and `find_site` raise.
    """
    facts: dict[str, Any] = {"machine": _machine(environ)}
    if path is not None:
        found = find(path, settings, environ)
        checked = verify(find_site(path, None, settings, environ), depth=Depth.QUICK)
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
    facts, spec = facts_as_json(found, found.standing(now)), found.machine.spec
    return {
        **{name: facts[name] for name in _OF_OVERVIEW},
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


_SCARCE_BYTES = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightReport:
    """The result; `path` has no credentials."""

    path: str
    steps: tuple[Step, ...]

    @property
    def is_sound(self) -> bool:
        """True if a run can use this storage, perhaps with fewer guarantees."""
        return all(step.outcome in (ProbeOutcome.OK, ProbeOutcome.WEAK) for step in self.steps)

    def plain(self) -> dict[str, Any]:
        """The report as JSON values."""
        steps = [
            {
                **asdict(step),
                "seconds": round(step.seconds, 4),
                "mib_per_s": None if step.mib_per_s is None else round(step.mib_per_s, 1),
            }
            for step in self.steps
        ]
        return {"path": self.path, "sound": self.is_sound, "steps": steps}


def preflight(uri: str, settings: Settings, *, large_bytes: int = LARGE_BYTES) -> PreflightReport:
    """Test a `storage_path` and the local directory. Raises InvalidLocation."""
    location = Location.resolve(uri, None, {})
    local = location.local_path
    is_direct = local is not None and not settings.explicit_local_dir
    work = Path(local) if local is not None and is_direct else settings.local_dir
    existed = local is None or os.path.isdir(local)
    try:
        steps = with_store(location, lambda store: probe(store, large_bytes=large_bytes))
    finally:
        if local is not None and not existed:
            _remove_if_empty(Path(local))
    # The directory in which a run writes its journal and checkpoints first.
    folder = next(path for path in (work, *work.parents) if path.is_dir())
    return PreflightReport(
        path=location.public, steps=(*steps, _try_lock(folder), _look_at_space(folder))
    )


def _remove_if_empty(folder: Path) -> None:
    """Remove the folder that the test created, unless it has files."""
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def _try_lock(folder: Path) -> Step:
    began = time.perf_counter()
    result, meaning = f"in {folder}", ""
    try:
        with tempfile.TemporaryDirectory(prefix=".holdfast-preflight-", dir=folder) as made:
            ExperimentLock(Path(made) / "lock", deadline_s=0).release()
    except StorageError as error:
        result, meaning = error.cause, error.advice
    except OSError as error:
        result = f"{error.strerror}: {error.filename}"
        meaning = "Set RAY_AIR_LOCAL_CACHE_DIR to a directory that you may write to"
    return Step(
        name="lock",
        outcome=ProbeOutcome.FAILED if meaning else ProbeOutcome.OK,
        seconds=time.perf_counter() - began,
        told=result,
        meaning=meaning,
    )


def _look_at_space(folder: Path) -> Step:
    free = shutil.disk_usage(folder).free
    is_scarce = free < _SCARCE_BYTES
    return Step(
        name="space",
        outcome=ProbeOutcome.WEAK if is_scarce else ProbeOutcome.OK,
        told=f"{size(free)} free in {folder}",
        meaning="Checkpoints are written here first, even if they are stored elsewhere."
        if is_scarce
        else "",
    )
