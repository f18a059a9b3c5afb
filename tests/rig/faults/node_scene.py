"""One run on several machines for a campaign: its script, its bucket, and the moments in it."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from typing import Any, Final

from holdfast.dataclass import dataclass
from tests.rig import ROOT
from tests.rig.bench import Bench, workbench
from tests.rig.faults import quick_beats
from tests.rig.faults.deaths import HOOK
from tests.rig.faults.ground import Ground
from tests.rig.faults.node_aftermath import Dealt
from tests.rig.faults.node_mishaps import Fact, NodeMishap, Wave, Workload
from tests.rig.script import UserScript
from tests.rig.storage.bucket import Bucket
from tests.rig.storage.proxy import Moment, Proxy

EPOCHS: Final = 15
EPOCHS_OF_POPULATION: Final = 5
_EVERY: Final = 5
_EPOCH_S: Final = 0.4
_OPTIONS: Final[dict[Workload, dict[str, Any]]] = {
    Workload.TRIALS: {"samples": 2, "num_to_keep": 1},
    Workload.IN_SYNC: {"samples": 2, "num_to_keep": 2, "upload_mode": "SYNC"},
    Workload.RANKS: {"ranks": 2, "rank_cpus": 1},
    Workload.POPULATION: {"epochs": EPOCHS_OF_POPULATION, "epoch_s": 1.0},
}
# Beats of a campaign: the lease is shorter than a user's.
_QUICK: Final = {"heartbeat_s": 1.0, "lease_s": 3.0, "margin_s": 1.0}
_LEASE_S: Final = 10.0
_IMPATIENT: Final = "request_timeout=2&connect_timeout=2"
# Failures of a trial: each node that is lost is one.
_BUDGET: Final = 30


@dataclass(slots=True, kw_only=True)
class Scene:
    """One run with a mishap. `moment` comes when the fact of this `wave` has occurred, or the
    script has ended. `dealt` has the faults of nodes so far, `losses` how often each host had
    been given up when this wave fell."""

    mishap: NodeMishap
    bench: Bench
    proxy: Proxy
    way: Bucket
    here: Path
    lease_s: float
    starting: Future[UserScript] = field(default_factory=Future)
    moment: threading.Event = field(default_factory=threading.Event)
    has_ended: threading.Event = field(default_factory=threading.Event)
    dealt: list[Dealt] = field(default_factory=list)
    losses: dict[str, int] = field(default_factory=dict)
    wave: Wave = Wave(blows=(), fact=Fact.BEGIN, at=0)
    _count: int = 0

    def arm(self, wave: Wave, act: Callable[[], bool]) -> None:
        """From now on, count the facts of this wave."""
        self.moment.clear()
        self._count, self.wave = 0, wave
        if self.has_ended.is_set():
            self.moment.set()
        elif wave.fact is Fact.REQUEST:
            self.proxy.arm(Moment(at=wave.at, is_performed=wave.node % 2 == 0, act=act))

    def end(self) -> None:
        """The script has ended: nothing waits for a moment any more."""
        self.has_ended.set()
        self.moment.set()

    def is_time(self, mark: str) -> bool:
        """Count a mark of the script."""
        begins = {Fact.EPOCH: "at ", Fact.BEGIN: "made"}.get(self.wave.fact)
        self._count += begins is not None and mark.startswith(begins)
        return begins is not None and mark.startswith(begins) and self._count == self.wave.at


@contextmanager
def scene_of(mishap: NodeMishap, made: Ground, folder: Path, script: Path) -> Iterator[Scene]:
    """A run in a new folder. Everything works again at the end."""
    folder.mkdir()
    made.clear()
    proxy = Proxy(made.server.endpoint, host=made.address)
    if mishap.workload is Workload.POPULATION:
        script = script.with_name("population_script.py")
    try:
        with workbench(folder, script) as bench:
            way = Bucket(made.server, folder.name, proxy, options=_IMPATIENT)
            here = bench.use(way, machine="here")
            lease_s = _equip(bench, mishap, made)
            yield Scene(
                mishap=mishap, bench=bench, proxy=proxy, way=way, here=here, lease_s=lease_s
            )
    finally:
        made.undo(proxy)
        proxy.close()
        shutil.rmtree(folder)


def _equip(bench: Bench, mishap: NodeMishap, made: Ground) -> float:
    """The options and the environment of the script. Returns the lease of its nodes."""
    bench.options |= {
        "epochs": EPOCHS,
        "epoch_s": _EPOCH_S,
        "checkpoint_every": _EVERY,
        "sync_period": 1.0,
        "artifacts": True,
        "sync_artifacts": True,
        "max_failures": _BUDGET,
        **_OPTIONS[mishap.workload],
    }
    # At its end a run waits so long for a keeper, or a projector, that makes no progress.
    bench.environ["HOLDFAST_FLUSH_DEADLINE_S"] = "60"
    bench.prefix = made.controller.in_net
    bench.environ["HOLDFAST_CLUSTER"] = made.cluster(len(made.nodes))
    if mishap.has_real_beats:
        return _LEASE_S
    bench.environ |= quick_beats.environ_for(**_QUICK)
    bench.environ["PYTHONPATH"] = f"{HOOK}{os.pathsep}{ROOT}"
    return _QUICK["lease_s"]
