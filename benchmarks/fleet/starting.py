"""How soon nodes are ready, compared with their engine's own time, and launches on a node."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

from benchmarks.measure import OURS, REFERENCE, Bench, finish, script
from benchmarks.rows import Goal, Row
from tests.rig.nodes import machines, slurm
from tests.rig.nodes.slurm_rigs import allocated

_NODES = 4
_READY_S = 2.0
_LAUNCH = Goal(of="ratio", bound=1.5)
_LOCAL = "local://?agents=1"


def measure(bench: Bench) -> list[Row]:
    rows = [_ready(bench, "local agents", _local())]
    for engine, missing, cluster in (
        ("SSH", machines.missing(), _over_ssh),
        ("a Slurm allocation", slurm.missing(), _in_slurm),
    ):
        if missing:
            rows.append(Row(work=_work(engine), unit="s", note=missing))
            continue
        with cluster(bench) as started:
            rows.append(_ready(bench, engine, started))
    return [*rows, _launch(bench)]


class Started:
    """A cluster: the environment of a script on it, and the command that runs `true` on each node
    (several commands that run at once)."""

    def __init__(self, environ: Mapping[str, str], trivial: Sequence[Sequence[str]]) -> None:
        self.environ = dict(environ)
        self.trivial = trivial

    def engine_s(self) -> float:
        """The engine's own time."""
        began_s = time.monotonic()
        running = [
            subprocess.Popen(command, env={**os.environ, **self.environ})
            for command in self.trivial
        ]
        for process in running:
            if process.wait():
                raise AssertionError(f"{process.args!r} ended with {process.returncode}")
        return time.monotonic() - began_s


def _local() -> Started:
    uri = f"local://?agents={_NODES}&cpus_per_node=1"
    return Started({"HOLDFAST_CLUSTER": uri}, [["true"]] * _NODES)


@contextmanager
def _over_ssh(bench: Bench) -> Iterator[Started]:
    home = bench.scratch()
    with machines.machines(_NODES, home, [bench.root]) as made:
        uri = made.cluster(python=sys.executable, cpus_per_node=1)
        yield Started(
            {"HOLDFAST_CLUSTER": uri}, [[*made.ssh, name, "true"] for name in made.names]
        )


@contextmanager
def _in_slurm(bench: Bench) -> Iterator[Started]:
    with ExitStack() as stack:
        cluster = stack.enter_context(slurm.slurm_cluster())
        rig = stack.enter_context(
            allocated(cluster, f"--nodes={_NODES}", "--ntasks-per-node=1", "--exclusive")
        )
        environ = {**rig.environ, "PATH": f"{os.environ['PATH']}:{rig.environ['PATH']}"}
        srun = shutil.which("srun", path=environ["PATH"])
        assert srun is not None
        trivial = [srun, f"--nodes={_NODES}", "--ntasks-per-node=1", "true"]
        yield Started({**environ, "HOLDFAST_CLUSTER": "auto"}, [trivial])


def _work(engine: str) -> str:
    return f"a fleet of {_NODES} is ready, after the engine's own time: {engine}"


def _ready(bench: Bench, engine: str, cluster: Started) -> Row:
    contenders: dict[str, Callable[[], float]] = {
        OURS: partial(_ready_s, bench, cluster),
        REFERENCE: cluster.engine_s,
    }
    samples = bench.interleaved(contenders)
    pairs = zip(samples[OURS], samples[REFERENCE], strict=True)
    return Row(
        work=_work(engine),
        unit="s",
        ours=[ours - own for ours, own in pairs],
        reference=samples[REFERENCE],
        reference_name=f"`true` on {_NODES} nodes",
        goal=Goal(of="ours", bound=_READY_S),
    )


def _ready_s(bench: Bench, cluster: Started) -> float:
    """Seconds from `fit()` until all nodes can run trials."""
    done = finish(script("fleet/fleet_ready", bench.scratch(), _NODES), **cluster.environ)
    return float(done.told["ready_s"])


def _launch(bench: Bench) -> Row:
    count = bench.size(200, 10)
    samples = bench.interleaved(
        {
            OURS: partial(_launch_ms, bench, count, HOLDFAST_CLUSTER=_LOCAL),
            REFERENCE: partial(_launch_ms, bench, count),
        }
    )
    return Row(
        work="launch of a trial on a node, to its first message",
        unit="ms",
        ours=samples[OURS],
        reference=samples[REFERENCE],
        reference_name="on the controller's machine",
        goal=_LAUNCH,
    )


def _launch_ms(bench: Bench, count: int, **environ: str) -> float:
    told = finish(script("fleet/launches", bench.scratch(), count), **environ).told
    return 1000 * float(told["launch_s"])
