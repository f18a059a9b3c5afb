"""Training on several ranks, compared with the same script under torchrun."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import mean, stdev

from benchmarks.measure import OURS, REFERENCE, SCRIPTS, Bench, Finished, finish, script, settle
from benchmarks.rows import Goal, Row
from benchmarks.storage.checkpoints import one_file

_RANKS = 4
_TORCHRUN = "torchrun"
# Two-sided 95% of Student's t distribution with 9 degrees of freedom.
_T_OF_TEN_PAIRS = 2.262


def measure(bench: Bench) -> list[Row]:
    return [*_start(bench), _barrier(bench), _staging(bench), *_recovery(bench), _cpu(bench)]


def _start(bench: Bench) -> list[Row]:
    contenders: dict[str, Callable[[], tuple[float, float]]] = {
        OURS: partial(_first_step, bench, "holdfast", sys.executable),
        REFERENCE: partial(_first_step, bench, "torch", sys.executable),
    }
    samples = bench.interleaved(contenders, warm=True)
    rays = bench.with_ray(partial(_first_step, bench, "ray"))
    return [
        Row(
            work=f"{_RANKS} torch ranks, from {since} to the first step",
            unit="s",
            ours=[sample[at] for sample in samples[OURS]],
            reference=[sample[1] for sample in samples[REFERENCE]],
            reference_name=_TORCHRUN,
            ray=[sample[at] for sample in rays],
            goal=Goal(of="ratio", bound=1.5),
        )
        for at, since in enumerate(("fit()", "the start of the script"))
    ]


def _first_step(bench: Bench, library: str, python: str) -> tuple[float, float]:
    """Seconds from `fit()`, and from the start of the script."""
    storage = bench.scratch()
    done = _train(library, storage, _RANKS, 1, 2, 16, python=python)
    step_s = float((storage / "step").read_text())
    called_s = done.began_s if library == "torch" else float((storage / "fit").read_text())
    return step_s - called_s, step_s - done.began_s


def _train(library: str, storage: Path, ranks: int, *sizes: int, python: str) -> Finished:
    arguments = [library, storage, ranks, *sizes]
    if library == "torch":
        return finish(_under_torchrun(ranks, "training/rank_train", *arguments))
    # Only Ray reads it: it selects the Train that runs as a trial of Tune.
    return finish(
        script("training/rank_train", *arguments, python=python), RAY_TRAIN_V2_ENABLED="0"
    )


def _under_torchrun(ranks: int, name: str, *arguments: object) -> list[str]:
    """One group of processes on this machine, started by torch's launcher."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command = [f"--nproc-per-node={ranks}", str(SCRIPTS / f"{name}.py"), *map(str, arguments)]
    return [*launcher, *command]


def _barrier(bench: Bench) -> Row:
    count = bench.size(2000, 50)
    samples = bench.interleaved(
        {OURS: partial(_report_ms, bench, count), REFERENCE: partial(_barrier_ms, count)}
    )
    return Row(
        work=f"report() of {_RANKS} ranks, each in the journal",
        unit="ms",
        ours=samples[OURS],
        reference=samples[REFERENCE],
        reference_name="a bare barrier of gloo",
        goal=Goal(of="ours", bound=2),
    )


def _report_ms(bench: Bench, count: int) -> float:
    storage = bench.scratch()
    finish(script("training/rank_reports", storage, "reports", "-", count))
    return 1000 * _span_s(storage) / count


def _barrier_ms(count: int) -> float:
    return 1000 * float(finish(_under_torchrun(_RANKS, "training/bare_barrier", count)).told)


def _span_s(storage: Path) -> float:
    """Seconds from the first rank's start to the last one's end."""
    spans = [_times(storage / f"rank-{rank}") for rank in range(_RANKS)]
    return max(span[1] for span in spans) - min(span[0] for span in spans)


def _times(path: Path) -> list[float]:
    return [float(line) for line in path.read_text().splitlines()]


def _staging(bench: Bench) -> Row:
    size = bench.size(64, 1)
    source = bench.scratch()
    for rank in range(_RANKS):
        folder = one_file(source / str(rank), size)
        (folder / "model.bin").rename(folder / f"model-{rank}.bin")
    samples = bench.interleaved(
        {
            OURS: partial(_staged, bench, source, size),
            REFERENCE: partial(_cp, bench, source, size),
        },
        warm=True,
    )
    return Row(
        work=f"{_RANKS} ranks each with {size} MiB in one checkpoint",
        unit="MiB/s",
        ours=samples[OURS],
        reference=samples[REFERENCE],
        reference_name=f"{_RANKS} cp -r at once",
        goal=Goal(of="ratio", bound=0.9, at_least=True),
    )


def _staged(bench: Bench, source: Path, size_mib: int) -> float:
    storage = bench.scratch()
    finish(script("training/rank_reports", storage, "checkpoint", source, 0))
    speed = _RANKS * size_mib / _span_s(storage)
    settle()
    return speed


def _cp(bench: Bench, source: Path, size_mib: int) -> float:
    target = bench.scratch()
    began_s = time.monotonic()
    running = [
        subprocess.Popen(["cp", "-r", str(source / str(rank)), str(target / str(rank))])
        for rank in range(_RANKS)
    ]
    if any(process.wait() for process in running):
        raise RuntimeError(f"cp into {target} failed")
    speed = _RANKS * size_mib / (time.monotonic() - began_s)
    settle()
    return speed


def _recovery(bench: Bench) -> list[Row]:
    samples = bench.interleaved(
        {which: partial(_recovered_s, bench, which) for which in ("no group", "torch's group")}
    )
    return [
        Row(
            work=f"from SIGKILL of one of {_RANKS} ranks to the first step again, {which}",
            unit="s",
            ours=taken,
            goal=Goal(of="ours", bound=1),
        )
        for which, taken in samples.items()
    ]


def _recovered_s(bench: Bench, which: str) -> float:
    storage = bench.scratch()
    what = "killed" if which == "no group" else "killed-in-torch"
    finish(script("training/rank_reports", storage, what, "-", 0))
    (killed_s,) = _times(storage / "killed")
    return max(_times(storage / f"step-2-{rank}")[0] for rank in range(_RANKS)) - killed_s


def _cpu(bench: Bench) -> Row:
    """Ten pairs, with the 95% confidence interval of their mean difference."""
    pairs = bench.size(10, 2)
    epochs, width = bench.size(10, 1), bench.size(512, 16)
    ours, plain = [], []
    for _ in range(pairs):
        sizes = (2, epochs, bench.size(150, 2), width)
        ours.append(_train("holdfast", bench.scratch(), *sizes, python=sys.executable).cpu_s)
        plain.append(_train("torch", bench.scratch(), *sizes, python=sys.executable).cpu_s)
    more = [100 * (our / bare - 1) for our, bare in zip(ours, plain, strict=True)]
    around = _T_OF_TEN_PAIRS * stdev(more) / len(more) ** 0.5
    return Row(
        work="a training of 2 torch ranks with 10 checkpoints, CPU",
        unit="s",
        ours=ours,
        reference=plain,
        reference_name=f"{_TORCHRUN}: {mean(more):+.1f}% ± {around:.1f}%",
        goal=Goal(of="ratio", bound=1.03),
    )
