"""Runs the same small experiment in a faulty bucket, or kills processes at its requests."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, assert_never

from holdfast.dataclass import dataclass
from tests.rig.bench import Bench
from tests.rig.faults.aftermath import Aftermath, Story
from tests.rig.faults.ills import Aim, AtRandom, GoesSilent, Ill, KeyExpires, Plan, Some, Well
from tests.rig.faults.mishaps import (
    NEEDS_MD5,
    SILENT,
    Expiry,
    Freeze,
    Kill,
    Outage,
    Remote,
    Storm,
    Strike,
)
from tests.rig.faults.stage import GOES_ON, Stage
from tests.rig.script import LONGEST_S, Process, UserScript
from tests.rig.storage.bucket import Bucket
from tests.rig.storage.proxy import Moment, Proxy
from tests.rig.storage.s3_server import S3Server

# The client's own deadlines if nothing answers: otherwise it would wait for a minute.
_IMPATIENT: Final = "request_timeout=2&connect_timeout=2"
_MULTIPART_BYTES: Final = 17 << 20
# The objects that name others: the rest may be late.
_COUNTS: Final = re.compile(r"/(head\.json|\.epochs/.*|journal/.*|\.holdfast\.json)$")
_RETRYING: Final = "; retrying"
_NOT_THERE: Final = "but this is not in"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """The first of two runs, in a bucket behind a proxy. `way` leads there without the proxy."""

    bench: Bench
    proxy: Proxy
    way: Bucket
    here: Path


class BucketStage:
    """`deciding` honours conditional puts, `hashing` checks MD5: no server here does both."""

    def __init__(self, stage: Stage, *, deciding: S3Server, hashing: S3Server) -> None:
        self._stage = stage
        self._deciding, self._hashing = deciding, hashing

    def requests(self) -> int:
        """How many requests a run makes with a healthy bucket."""
        with self._run(Well()) as run:
            run.bench.start().succeeds()
            return len(run.proxy.log)

    def play(self, mishap: Remote) -> Story:
        """A run with this fault, and one that resumes it when everything works again."""
        match mishap:
            case Strike():
                return self._strike(mishap)
            case Storm():
                return self._storm(mishap)
            case Expiry():
                return self._expire(mishap)
            case Outage():
                return self._fail(mishap)
            case Kill():
                return self._kill(mishap)
            case Freeze():
                return self._freeze(mishap)
            case _:
                assert_never(mishap)

    # -- the fault ---------------------------------------------------------------------------

    def _strike(self, strike: Strike) -> Story:
        plan = Some(ill=strike.ill, at=strike.at, times=strike.times, aim=strike.aim)
        server = self._hashing if strike.ill in NEEDS_MD5 else self._deciding
        with self._run(plan, server, is_impatient=strike.ill in SILENT) as run:
            if strike.aim in (Aim.PART, Aim.COMPLETION):
                run.bench.options |= {"checkpoint_bytes": _MULTIPART_BYTES, "epochs": 2}
            after = Aftermath(run.bench)
            self._first(run, after, run.bench.start())
            return self._second(run, after, strike)

    def _storm(self, storm: Storm) -> Story:
        server = self._hashing if storm.seed % 2 else self._deciding
        ills = [ill for ill in Ill if server is self._hashing or ill not in NEEDS_MD5]
        plan = AtRandom(ills=ills, probability=storm.probability, seed=storm.seed)
        with self._run(plan, server, is_impatient=True) as run:
            after = Aftermath(run.bench)
            self._first(run, after, run.bench.start())
            told = {f"{storm.kind}: {ill}": count for ill, count in run.proxy.injected.items()}
            return self._second(run, after, storm, injected=told)

    def _expire(self, expiry: Expiry) -> Story:
        with self._run(KeyExpires(at=expiry.at)) as run:
            after = Aftermath(run.bench)
            if self._first(run, after, run.bench.start()) == 0 and run.proxy.struck:
                after.wrong("it ended well without credentials")
            run.bench.environ["AWS_ACCESS_KEY_ID"] = "renewed"
            return self._second(run, after, expiry, through_proxy=True)

    def _fail(self, outage: Outage) -> Story:
        gone = threading.Event()
        silence = GoesSilent(at=outage.at if outage.is_silent else 1 << 30, has_begun=gone)

        def vanish() -> bool:
            gone.set()
            run.proxy.vanish()
            return False

        moment = Moment(at=outage.at, is_performed=False, act=vanish)
        with self._run(
            silence, moment=None if outage.is_silent else moment, is_impatient=True
        ) as run:
            # At its start and end a run waits for storage: long enough for one that comes back.
            waits_s = 4 if outage.lasts_s is None else 120
            run.bench.environ["HOLDFAST_FLUSH_DEADLINE_S"] = str(waits_s)
            run.bench.options["sync_timeout"] = waits_s
            after = Aftermath(run.bench)
            script = run.bench.start()
            if outage.lasts_s is not None:
                self._sit_out(script, gone, outage.lasts_s)
                silence.is_over.set()
                if gone.is_set() and not outage.is_silent:
                    run.proxy.come_back()
            code = self._first(run, after, script)
            if outage.lasts_s is None and gone.is_set() and code == 0:
                after.wrong("it ended well without its storage")
            return self._second(run, after, outage)

    def _sit_out(self, script: UserScript, gone: threading.Event, lasts_s: float) -> None:
        """Wait until the run has reported a retry, or this long; it may end before."""
        if not lasts_s:
            script.says(_RETRYING, 1)
            return
        _first_of(gone, script)
        ended = threading.Event()
        _first_of(ended, script, within_s=lasts_s)

    def _kill(self, kill: Kill) -> Story:
        starting: Future[UserScript] = Future()

        def act() -> bool:
            for process in starting.result(LONGEST_S).processes():
                if process.role in kill.victims:
                    process.kill()
                    process.ends()
                os.close(process.pidfd)
            return not {"script", "uploader"} & set(kill.victims)

        moment = Moment(at=kill.at, is_performed=kill.is_performed, act=act)
        with self._run(Well(), moment=moment) as run:
            after = Aftermath(run.bench)
            starting.set_result(run.bench.start())
            self._first(run, after, starting.result(), was_killed=True)
            return self._second(run, after, kill)

    def _freeze(self, freeze: Freeze) -> Story:
        starting: Future[UserScript] = Future()
        reached, thawed = threading.Event(), threading.Event()
        frozen: list[Process] = []

        def act() -> bool:
            frozen.extend(_stopped(starting.result(LONGEST_S)))
            reached.set()
            thawed.wait()
            return True

        moment = Moment(at=freeze.at, is_performed=freeze.is_performed, act=act)
        with self._run(Well(), moment=moment) as run:
            after = Aftermath(run.bench)
            older = run.bench.start()
            starting.set_result(older)
            _first_of(reached, older)
            found: dict[str, Any] | None = None
            try:
                if frozen:
                    found = self._meanwhile(run, after, freeze)
            finally:
                for process in frozen:
                    process.signal(signal.SIGCONT)
                    os.close(process.pidfd)
                thawed.set()
            self._thaw(run, after, older, found)
            return after.story(freeze, "; ".join(run.proxy.struck))

    def _meanwhile(self, run: _Run, after: Aftermath, freeze: Freeze) -> dict[str, Any] | None:
        """Run the other incarnation while the first is stopped.

        Returns what is there when it has ended, and must not change if the first continues.
        """
        if freeze.elsewhere:
            there = run.bench.use(run.way, machine="elsewhere")
            # Only the first machine has a checkpoint that was not uploaded; it is reported.
            after.finishes(run.bench.start(**GOES_ON), may_lose=True)
            return _content(run, there)
        before = _content(run, run.here)
        refused = run.bench.start(**GOES_ON, storage=run.way.storage_path)
        after.checked["a second incarnation is refused here, and changes nothing"] += 1
        if not after.ended(refused) or "ExperimentInUse" not in refused.stderr:
            after.wrong("a second incarnation was let in")
        after.problems += _changes(before, _content(run, run.here))
        return None

    def _thaw(
        self, run: _Run, after: Aftermath, older: UserScript, found: dict[str, Any] | None
    ) -> None:
        if found is None:
            after.finishes(older)
            trees = [run.here, run.way.download(run.bench.storage)]
            after.holds(trees, run.bench.notes())
            return
        after.ended(older)
        after.checked["an older incarnation changes nothing of what makes others count"] += 1
        after.problems += _changes(found, _content(run, run.bench.folder / "elsewhere" / "run"))
        # Requests that it sent before it was stopped may arrive late: files of rows, and of
        # checkpoints that no record names. The next run repairs that.
        after.finishes(run.bench.start(**GOES_ON), may_lose=True)
        # Rows that the older one acknowledged and never published are only on its machine; so are
        # checkpoints of ended trials here.
        after.holds([run.way.download(run.bench.storage)], notes=())

    # -- the two runs -------------------------------------------------------------------------

    @contextmanager
    def _run(
        self,
        plan: Plan,
        server: S3Server | None = None,
        *,
        moment: Moment | None = None,
        is_impatient: bool = False,
    ) -> Iterator[_Run]:
        server = server or self._deciding
        with self._stage.bench() as bench:
            prefix = f"{bench.folder.parent.name}-{bench.folder.name}"
            proxy = Proxy(server.endpoint, plan, moment=moment)
            options = _IMPATIENT if is_impatient else ""
            try:
                here = bench.use(Bucket(server, prefix, proxy, options=options), machine="here")
                bench.options["sync_artifacts"] = True
                yield _Run(bench=bench, proxy=proxy, way=Bucket(server, prefix), here=here)
            finally:
                proxy.close()

    def _first(
        self, run: _Run, after: Aftermath, script: UserScript, *, was_killed: bool = False
    ) -> int:
        """The run with the fault may fail, and then has reported it; if it succeeds, everything is
        in the bucket."""
        code = after.ended(script)
        if code == 0:
            between = run.way.download(run.bench.folder / "between")
            after.holds([between], run.bench.notes(), ended=False, when="after a good end: ")
        elif not was_killed:
            after.checked["a failure is told"] += 1
            if code != 1 or run.way.public not in script.stderr:
                after.wrong(f"it ended with {code} and does not tell of {run.way.public}")
            if _NOT_THERE in script.stderr and "uploads it" not in script.stderr:
                after.wrong("it does not tell how to finish")
        return code

    def _second(
        self,
        run: _Run,
        after: Aftermath,
        mishap: Remote,
        *,
        injected: Mapping[str, int] | None = None,
        through_proxy: bool = False,
    ) -> Story:
        fell_on = "; ".join(run.proxy.struck[:3])
        if not through_proxy:
            run.proxy.close()
            run.bench.options["storage"] = run.way.storage_path
        after.finishes(run.bench.start(**GOES_ON))
        # Downloaded when the second run has ended, to where a directory would be.
        after.holds([run.here, run.way.download(run.bench.storage)], run.bench.notes())
        return after.story(mishap, fell_on, injected)


def _first_of(event: threading.Event, script: UserScript, within_s: float = LONGEST_S) -> None:
    """Wait for the event or the end of the script, whichever comes first."""

    def watch() -> None:
        script.process.wait()
        event.set()

    threading.Thread(target=watch, daemon=True).start()
    event.wait(within_s)


def _stopped(script: UserScript) -> list[Process]:
    """Stop all of its processes, repeatedly, until none was forked meanwhile."""
    stopped: dict[int, Process] = {}
    while found := [each for each in script.processes() if each.pid not in stopped]:
        for process in found:
            process.signal(signal.SIGSTOP)
            stopped[process.pid] = process
    return list(stopped.values())


def _content(run: _Run, tree: Path) -> dict[str, Any]:
    """The relevant objects in the bucket and all files of the tree, for comparison."""
    listed = run.way.listing()
    found: dict[str, Any] = {f"bucket: {k}": listed[k] for k in listed if _COUNTS.search(k)}
    for path in tree.rglob("*"):
        if path.is_file():
            found[str(path.relative_to(run.bench.folder))] = path.read_bytes()
    return found


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    for key in sorted(before.keys() | after.keys()):
        if key not in after:
            yield f"removed by an incarnation that may not write: {key}"
        elif key not in before:
            yield f"made by an incarnation that may not write: {key}"
        elif before[key] != after[key]:
            yield f"changed by an incarnation that may not write: {key}"
