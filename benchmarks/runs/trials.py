"""No-op trials, a process each, compared with a bare loop that starts one process per task."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from benchmarks.measure import OURS, REFERENCE, Bench, finish, script
from benchmarks.rows import Goal, Row
from holdfast.experiment.folder.layout import PROGRESS, RESULTS, Layout
from holdfast.experiment.records.journal import read_events
from holdfast.scheduler.events import Exited

_BARE = "a bare Process by fork per task"
_RATIO = Goal(of="ratio", bound=0.8, at_least=True)
_RATIO_WITH_TENSORBOARD = Goal(of="ratio", bound=0.4, at_least=True)
_FLAT = Goal(of="ratio", bound=1.2)
_WARM = 50
# In a run of 5,100 trials: trials 25 to 75 compared with 4,950 to 5,000, away from both ends.
_WINDOW, _EARLY, _LATE = 50, 25, 150
# Ray takes a second for each.
_RAYS_TRIALS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pace:
    """Trials per second: after the first 50 up to the last written file, and from the beginning.

    `early_s` and `late_s` are seconds per trial around the 50th and around the 100th from the end.
    """

    steady: float
    whole: float
    early_s: float
    late_s: float


def measure(bench: Bench) -> list[Row]:
    count = 5100 if bench.long else bench.size(1500, 250)
    return [
        *_plain(bench, count),
        _with_tensorboard(bench, bench.size(600, 120)),
        *(_with_module(bench, name, bench.size(600, 120)) for name in ("numpy", "torch")),
    ]


def _plain(bench: Bench, count: int) -> list[Row]:
    samples = bench.interleaved(
        {
            OURS: partial(_ours, bench, count),
            REFERENCE: partial(_bare, count),
        }
    )
    late = f"{count - _LATE:,} to {count - _LATE + _WINDOW:,}"
    return [
        _steady(f"no-op trials, after the first {_WARM}", samples, _RATIO),
        Row(
            work=f"no-op trials, all {count:,} of a fit()",
            unit="/s",
            ours=[pace.whole for pace in samples[OURS]],
            reference=[pace.whole for pace in samples[REFERENCE]],
            reference_name=_BARE,
            ray=bench.with_ray(partial(_ray, bench)),
        ),
        Row(
            work=f"time per no-op trial, {late}",
            unit="ms",
            ours=[1000 * pace.late_s for pace in samples[OURS]],
            reference=[1000 * pace.early_s for pace in samples[OURS]],
            reference_name="its trials 25 to 75",
            goal=_FLAT,
        ),
    ]


def _with_tensorboard(bench: Bench, count: int) -> Row:
    samples = bench.interleaved(
        {
            OURS: partial(_ours, bench, count, HOLDFAST_TENSORBOARD="1"),
            REFERENCE: partial(_bare, count),
        }
    )
    return _steady("no-op trials, TensorBoard on", samples, _RATIO_WITH_TENSORBOARD)


def _with_module(bench: Bench, name: str, count: int) -> Row:
    work = f"no-op trials, {name} imported by the user's module"
    if find_spec(name) is None:
        return Row(work=work, unit="/s", note="not installed")
    samples = bench.interleaved(
        {
            OURS: partial(_ours, bench, count, name),
            REFERENCE: partial(_bare, count, name),
        }
    )
    return _steady(work, samples, None)


def _steady(work: str, samples: dict[str, list[_Pace]], goal: Goal | None) -> Row:
    return Row(
        work=work,
        unit="/s",
        ours=[pace.steady for pace in samples[OURS]],
        reference=[pace.steady for pace in samples[REFERENCE]],
        reference_name=_BARE,
        goal=goal,
    )


def _ours(bench: Bench, count: int, module: str = "", **environ: str) -> _Pace:
    storage = bench.scratch()
    command = script("runs/noop_trials", "holdfast", storage, count, *[module][: bool(module)])
    told = finish(command, **environ).told
    ends = _ends(storage / "noop")
    written = _last_written(storage / "noop")
    return _pace(ends, max(ends[-1], written), told["fit_s"])


def _ends(experiment: Path) -> list[float]:
    """The end of each trial's process, by the system's clock."""
    events = read_events(Layout(experiment).journal)
    return [record.now for record, _ in events if isinstance(record.event, Exited)]


def _last_written(experiment: Path) -> float:
    """The time of the last write to a trial's files, which lags behind the trials."""
    names = (RESULTS, PROGRESS)
    return max(path.stat().st_mtime for name in names for path in experiment.glob(f"*/{name}"))


def _bare(count: int, module: str = "") -> _Pace:
    concurrency = len(os.sched_getaffinity(0))
    told = finish(
        script("runs/bare_processes", count, concurrency, *[module][: bool(module)])
    ).told
    return _pace(told["ends"], max(told["ends"]), told["all_s"])


def _ray(bench: Bench, python: str) -> float:
    """Trials per second, of a whole fit()."""
    count = bench.size(_RAYS_TRIALS, 4)
    storage = bench.scratch()
    told = finish(script("runs/noop_trials", "ray", storage, count, python=python)).told
    fit_s: float = told["fit_s"]
    return count / fit_s


def _pace(ends: Sequence[float], last: float, whole_s: float) -> _Pace:
    count = len(ends)
    return _Pace(
        steady=(count - _WARM) / (last - ends[_WARM - 1]),
        whole=count / whole_s,
        early_s=_per_trial(ends, _EARLY),
        late_s=_per_trial(ends, count - _LATE),
    )


def _per_trial(ends: Sequence[float], first: int) -> float:
    return (ends[first + _WINDOW] - ends[first]) / _WINDOW
