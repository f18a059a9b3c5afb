"""A live run of a large experiment, with and without watchers of its page, in turns."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
import urllib.request
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from http.client import HTTPException
from http.cookiejar import CookieJar
from pathlib import Path

from benchmarks.measure import ScriptFailed, environment, script
from benchmarks.page.chromium import TABLE, Chromium, shown_s
from benchmarks.page.server import Server, holdfast_web
from holdfast.dataclass import dataclass
from holdfast.experiment.folder.layout import RESULTS

_BEGINS_S = 300.0
_ENDS_S = 300.0
_SETTLES_S = 5.0
# The files have grown for so many seconds.
_GROWS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """Part of the run: who watched, from when to when (monotonic), and what the watchers used.

    `server_cpu` and `browser_cpu` are shares of a core.
    """

    watcher: str
    began_s: float
    ended_s: float
    server_cpu: float = 0.0
    browser_cpu: float = 0.0


class LiveRun:
    """A run whose trials report at a fixed rate; `end` returns how long each report took.

    `cores`: those that it may use; None for all.
    """

    def __init__(
        self,
        experiment: Path,
        out: Path,
        *,
        rate: float,
        trials: int,
        cores: Sequence[int] | None = None,
    ) -> None:
        self.experiment = experiment
        self._out = out
        command = script("watched_reports", experiment, rate / trials, out)
        with on_cores(cores):
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=environment()
            )

    def wait_until_steady(self) -> None:
        """Wait until the trials report and their files grow: after a restore, the projector reads
        the whole journal first. Raises ScriptFailed."""
        by_s = time.monotonic() + _BEGINS_S
        before, grown = self._rows_bytes, 0
        while grown < _GROWS:
            if self._process.poll() is not None or time.monotonic() > by_s:
                raise ScriptFailed("the live run did not report")
            time.sleep(1.0)
            now = self._rows_bytes
            grown += any(size > before.get(path, size) for path, size in now.items())

    @property
    def _rows_bytes(self) -> dict[Path, int]:
        found = {}
        for path in self.experiment.glob(f"*/{RESULTS}"):
            with suppress(FileNotFoundError):  # it is being replaced
                found[path] = path.stat().st_size
        return found

    def end(self) -> list[tuple[float, float]]:
        """When each report began, and how long it took, in seconds."""
        (self._out / "end").touch()
        self._process.wait(_ENDS_S)
        found = []
        for path in self._out.glob("*.taken"):
            values = array("d")
            values.frombytes(path.read_bytes())
            found += list(zip(values[::2], values[1::2], strict=True))
        return found

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()


@contextmanager
def on_cores(cores: Sequence[int] | None) -> Iterator[None]:
    """What is started meanwhile runs on these cores; None for all."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, before if cores is None else cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def phase(run: LiveRun, watcher: str, seconds: float, browser: Chromium | None) -> Phase:
    """Let the run be watched for a while: by "nobody", by a "browser" that shows the head of the
    page, by one that shows the "curves" further down, or by a reader of "the stream" alone, as
    from a browser on another machine."""
    if watcher == "nobody":
        time.sleep(_SETTLES_S)
        began_s = time.monotonic()
        time.sleep(seconds)
        return Phase(watcher=watcher, began_s=began_s, ended_s=time.monotonic())
    with holdfast_web(run.experiment) as server:
        if watcher in ("browser", "curves"):
            assert browser is not None
            with browser.page() as page:
                shown_s(page, server.url, TABLE)
                if watcher == "curves":
                    page.locator("#charts").scroll_into_view_if_needed()
                page.wait_for_timeout(1000 * _SETTLES_S)
                before_s = browser.cpu_s
                found = _used(server, watcher, lambda: page.wait_for_timeout(1000 * seconds))
                used = (browser.cpu_s - before_s) / (found.ended_s - found.began_s)
                return Phase(
                    watcher=watcher, began_s=found.began_s, ended_s=found.ended_s,
                    server_cpu=found.server_cpu, browser_cpu=used,
                )  # fmt: skip
        with reading(server, run.experiment.name):
            time.sleep(_SETTLES_S)
            return _used(server, watcher, lambda: time.sleep(seconds))


def _used(server: Server, watcher: str, wait: Callable[[], object]) -> Phase:
    began_s, cpu_s = time.monotonic(), server.cpu_s
    wait()
    ended_s = time.monotonic()
    share = (server.cpu_s - cpu_s) / (ended_s - began_s)
    return Phase(watcher=watcher, began_s=began_s, ended_s=ended_s, server_cpu=share)


@contextmanager
def reading(server: Server, key: str) -> Iterator[None]:
    """Read what a page of the experiment reads, without showing it."""
    jar = urllib.request.HTTPCookieProcessor(CookieJar())
    opener = urllib.request.build_opener(jar)
    base = server.url.partition("?")[0]
    opener.open(server.url).read()
    for path in (f"api/e/{key}", f"api/e/{key}/trials"):
        opener.open(f"{base}{path}").read()
    stream = opener.open(f"{base}api/e/{key}/stream")

    def read() -> None:
        with suppress(OSError, ValueError, HTTPException):
            while stream.read1(1 << 16):
                pass

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stream.fp.raw._sock.shutdown(2)
        thread.join()


def p99(reports: Sequence[tuple[float, float]], during: Phase) -> float:
    """The 99th percentile of the reports of a phase, in seconds."""
    taken = sorted(took for at, took in reports if during.began_s <= at < during.ended_s)
    return taken[max(0, -(-99 * len(taken) // 100) - 1)]
