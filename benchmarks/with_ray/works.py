"""What is measured of each side: runs of one script, which does the same on both."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.measure import settle
from benchmarks.with_ray.lines import Sample
from benchmarks.with_ray.running import Running, Side, children_cpu_s, running

_MEMORY_TRIALS = 4
# After the last trial has begun, for what Ray still starts and caches.
_CALM_S = 5.0
_PAUSE_S = 10.0
_EPOCHS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much of each work."""

    reports: int = 1000
    several: int = 4
    trials: int = 40
    reused: int = 200
    asha: int = 256
    restored: int = 1000
    mib: int = 64
    checkpoints: int = 5
    idle_s: float = 120.0


QUICK = Sizes(
    reports=50, trials=4, reused=8, asha=16, restored=50, mib=2, checkpoints=2, idle_s=5.0
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """Where and how much. `root` is on the disk to measure, `short` a folder with a short path."""

    root: Path
    short: Path
    sizes: Sizes

    @contextmanager
    def run(self, side: Side, work: str, **settings: Any) -> Iterator[Running]:
        """Run the script in a new folder."""
        storage = Path(tempfile.mkdtemp(dir=self.root))
        with running(side, work, storage=storage, short=self.short, **settings) as run:
            yield run


def first(field: Field, side: Side) -> list[Sample]:
    """From the start of the process; its imports and `ray.init()` are part of it."""
    seconds: list[float] = []

    def measured() -> None:
        with field.run(side, "once") as run:
            seconds.append(run.next()["at_s"] - run.began_s)
            run.finish()
        seconds.append(time.monotonic() - run.began_s)

    cpu_s = children_cpu_s(measured)
    return [
        Sample(work="process start to the first report, with ray.init()", unit="s",
               value=seconds[0]),
        Sample(work="the whole script, until its last process has ended", unit="s",
               value=seconds[1]),
        Sample(work="CPU of the whole script, all processes", unit="s", value=cpu_s),
    ]  # fmt: skip


def reports(field: Field, side: Side) -> list[Sample]:
    several = field.sizes.several
    return [
        _reports(field, side, 1, "reports of one trial"),
        _reports(field, side, several, f"reports of {several} trials together"),
    ]


def _reports(field: Field, side: Side, trials: int, work: str) -> Sample:
    count = field.sizes.reports
    config = {"count": count}
    with field.run(side, "reporting", trials=trials, cpus=trials, config=config) as run:
        told = run.all(trials)
        run.finish()
    span_s = max(one["at_s"] for one in told) - min(one["began_s"] for one in told)
    return Sample(work=work, unit="/s", value=trials * count / span_s)


def trials(field: Field, side: Side) -> list[Sample]:
    return [
        _trials(field, side, field.sizes.trials, "no-op trials, a process each", reuse=False),
        _trials(field, side, field.sizes.reused, "no-op trials, reuse_actors=True", reuse=True),
    ]


def _trials(field: Field, side: Side, count: int, work: str, *, reuse: bool) -> Sample:
    """From the first trial's report to the last one's: `first` measures the start."""
    with field.run(side, "once", trials=count, reuse=reuse) as run:
        at_s = [one["at_s"] for one in run.all(count)]
        run.finish()
    return Sample(work=work, unit="/s", value=(count - 1) / (max(at_s) - min(at_s)))


def asha(field: Field, side: Side) -> list[Sample]:
    count = field.sizes.asha
    took_s: list[float] = []

    def measured() -> None:
        with field.run(side, "asha", trials=count, config={"epochs": _EPOCHS}) as run:
            took_s.append(run.next()["fit_s"])
            run.finish()

    cpu_s = children_cpu_s(measured)
    work = f"ASHA, {count} trials of at most {_EPOCHS} epochs, reuse_actors=True"
    return [
        Sample(work=f"{work}: fit()", unit="s", value=took_s[0]),
        Sample(work="CPU of that script, all processes", unit="s", value=cpu_s),
    ]


def restore(field: Field, side: Side) -> list[Sample]:
    """From the start of the process to the first report of a trial that had failed."""
    count = field.sizes.restored
    storage, saved = field.root / f"{side.name}-restored", field.root / f"{side.name}-saved"
    if not saved.exists():
        _prepare(field, side, storage, saved)
    shutil.rmtree(storage)
    shutil.copytree(saved, storage)
    settle()
    with running(side, "restore", storage=storage, short=field.short) as run:
        value = run.next()["at_s"] - run.began_s
    work = f"restore of {count:,} trials, {count // 50} to repeat, to the first report"
    return [Sample(work=work, unit="s", value=value)]


def _prepare(field: Field, side: Side, storage: Path, saved: Path) -> None:
    storage.mkdir()
    repaired = storage / "repaired"
    with running(
        side, "prepare", storage=storage, short=field.short, trials=field.sizes.restored,
        config={"repaired": str(repaired)},
    ) as run:  # fmt: skip
        run.finish()
    repaired.touch()
    shutil.copytree(storage, saved)


def memory(field: Field, side: Side) -> list[Sample]:
    trials = _MEMORY_TRIALS
    config = {"pause_s": _PAUSE_S}
    with field.run(side, "waiting", trials=trials, cpus=trials, config=config) as run:
        run.all(trials)
        time.sleep(_CALM_S)
        script, *others = run.pss_mib()
        run.finish()
    work = f"memory while {trials} trials run (PSS)"
    return [
        Sample(work=f"{work}: the script's process", unit="MiB", value=script),
        Sample(work=f"{work}: all processes", unit="MiB", value=script + sum(others)),
        Sample(work="processes then", unit="", value=1 + len(others)),
    ]


def checkpoint(field: Field, side: Side) -> list[Sample]:
    sizes = field.sizes
    source = Path(tempfile.mkdtemp(dir=field.root)) / "source"
    config = {"mib": sizes.mib, "count": sizes.checkpoints, "source": str(source)}
    with field.run(side, "saving", config=config) as run:
        took_s = run.next()["took_s"]
        run.finish()
    settle()
    work = f"report() with a checkpoint of {sizes.mib} MiB, the median of {sizes.checkpoints}"
    return [Sample(work=work, unit="ms", value=1000 * median(took_s))]


def idle(field: Field, side: Side) -> list[Sample]:
    trials, idle_s = _MEMORY_TRIALS, field.sizes.idle_s
    config = {"pause_s": _PAUSE_S}
    with field.run(side, "waiting", trials=trials, cpus=trials, config=config) as run:
        run.all(trials)
        time.sleep(_CALM_S)
        before_s, began_s = run.cpu_s(), time.monotonic()
        time.sleep(idle_s)
        share = (run.cpu_s() - before_s) / (time.monotonic() - began_s)
        run.finish()
    work = f"CPU of {trials} trials that report every {_PAUSE_S:g} s, of one core"
    return [Sample(work=work, unit="%", value=100 * share)]


def recovery(field: Field, side: Side) -> list[Sample]:
    """From SIGKILL of a trial's process to the trial's next report, from its beginning."""
    with field.run(side, "waiting", failures=1, config={"pause_s": _PAUSE_S}) as run:
        pid = run.next()["pid"]
        time.sleep(_CALM_S)
        began_s = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        value = run.next()["at_s"] - began_s
        run.finish()
    return [Sample(work="from SIGKILL of a worker to its trial's next report", unit="s",
                   value=value)]  # fmt: skip


WORKS: Mapping[str, Callable[[Field, Side], list[Sample]]] = {
    work.__name__: work
    for work in (first, reports, trials, asha, restore, memory, checkpoint, idle, recovery)
}
