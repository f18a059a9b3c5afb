"""The figures of the live page in chromium, for 10,000 trials and a million rows.

The run with watchers is a restore of such an experiment in which ten trials report a hundred times
a second each. It is watched in turns by nobody, by a client that only reads the stream (as of a
browser on another machine), and by chromium on this one: with the head of the page in sight, and
with the curves.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING

from benchmarks.measure import Bench
from benchmarks.page.chromium import TABLE, Chromium, chromium, shown_s
from benchmarks.page.comparing import compared
from benchmarks.page.live import LiveRun, Phase, on_cores, p99, phase
from benchmarks.page.search import write_search
from benchmarks.page.server import holdfast_web
from benchmarks.rows import Goal, Row

if TYPE_CHECKING:
    from playwright.sync_api import Page

_SHOWN = Goal(of="ours", bound=2.0)
_CURVES = Goal(of="ours", bound=1.0)
_MANY_CURVES = Goal(of="ours", bound=2.0)
_MEMORY = Goal(of="ours", bound=300.0)
_UNHINDERED = Goal(of="ratio", bound=1.1)
_CPU = Goal(of="ours", bound=2.0)
_SELECTED = 200
_MANY = 1_000
_RATE = 1_000
_RUNNING = 10
_PHASE_S = 15
_IDLE_S = 4.0
_BY = {
    "the stream": "a reader of the page's stream",
    "browser": "chromium, which shows the page",
    "curves": "chromium, which shows the curves",
}
_WATCHERS = ("nobody", *_BY)
# Changes the selection, and resolves to the milliseconds until its curves are painted.
_SELECT = """async ([hash, count]) => {
  const began = performance.now();
  location.hash = hash;
  const frame = () => new Promise(done => requestAnimationFrame(done));
  const label = () => document.querySelector("#charts .chart-host")?.getAttribute("aria-label");
  const drawn = () => performance.getEntriesByType("measure").some(
    one => one.startTime > began && one.name.startsWith("chart: Learning curves"));
  const wanted = `Learning curves of ${count.toLocaleString("en")} trials`;
  while (!(label()?.startsWith(wanted) && drawn())) await frame();
  await frame();
  await frame();
  return performance.now() - began;
}"""


def measure(bench: Bench) -> list[Row]:
    with chromium() as browser:
        rows = [*_opened(bench, browser), *_live(bench, browser)]
    first, *others = sorted(os.sched_getaffinity(0))
    if not others:
        return rows
    with on_cores(others), chromium() as browser:
        return [*rows, *_apart(bench, browser, [first])]


def _opened(bench: Bench, browser: Chromium) -> list[Row]:
    trials = bench.size(10_000, 60)
    experiment = bench.scratch() / "search"
    bench.say(f"  writing {trials:,} trials ...")
    what = f"{trials:,} trials, {write_search(experiment, trials=trials):,} rows"
    cold, warm, bands, lines, many, memory, used = ([] for _ in range(7))
    for turn in range(bench.runs):
        bench.say(f"  page {turn + 1} of {bench.runs} ...")
        # The browser is open, with an empty tab.
        with browser.page() as page, holdfast_web(experiment) as server:
            cold.append(shown_s(page, server.url, TABLE, began_s=server.began_s))
            page.wait_for_timeout(1000 * _IDLE_S)
            page.close()
            with browser.page() as page:
                warm.append(shown_s(page, server.url, TABLE))
                page.wait_for_timeout(1000 * _IDLE_S)
                ids = _drawn(trials, _SELECTED, 3 * turn)
                bands.append(_select(page, experiment.name, ids, ""))
                ids = _drawn(trials, _SELECTED, 3 * turn + 1)
                lines.append(_select(page, experiment.name, ids, "&spread=lines"))
                ids = _drawn(trials, _MANY, 3 * turn + 2)
                many.append(_select(page, experiment.name, ids, "&spread=lines"))
                memory.append(server.memory_mib)
                used.append(browser.memory_mib)
    selected, most = min(_SELECTED, trials), min(_MANY, trials)
    mine = [
        Row(
            work=f"page of {what}, from the start of its server", unit="s", ours=cold, goal=_SHOWN
        ),
        Row(work="the same, the server has read the experiment", unit="s", ours=warm, goal=_SHOWN),
        Row(work=f"curves of {selected} trials as a band", unit="s", ours=bands, goal=_CURVES),
        Row(work=f"curves of {selected} trials as lines", unit="s", ours=lines, goal=_CURVES),
        Row(work=f"curves of {most} trials as lines", unit="s", ours=many, goal=_MANY_CURVES),
        Row(work="memory of the server (PSS)", unit="MiB", ours=memory, goal=_MEMORY),
        Row(work="memory of chromium (PSS)", unit="MiB", ours=used),
    ]
    if not bench.with_optuna:
        return mine
    return [*mine, *compared(bench, browser, experiment, experiment.parent / "trials.db")]


def _drawn(trials: int, count: int, seed: int) -> list[str]:
    numbers = Random(seed).sample(range(trials), min(count, trials))
    return [f"d2a66_{number:05}" for number in numbers]


def _select(page: Page, key: str, ids: Sequence[str], view: str) -> float:
    hash_ = f"#/e/{key}?sel={','.join(ids)}{view}"
    taken_ms: float = page.evaluate(_SELECT, [hash_, len(ids)])
    page.wait_for_timeout(1000)
    return taken_ms / 1000


def _live(bench: Bench, browser: Chromium) -> list[Row]:
    reports, phases = _watched(bench, browser, None)
    return [*_hindered(reports, phases, ""), *_used(phases)]


def _apart(bench: Bench, browser: Chromium, cores: Sequence[int]) -> list[Row]:
    """The run has these cores, and what watches it has others, as on another machine."""
    return _hindered(*_watched(bench, browser, cores), ", on other cores than the run")


def _watched(
    bench: Bench, browser: Chromium, cores: Sequence[int] | None
) -> tuple[Sequence[tuple[float, float]], list[Phase]]:
    """The reports of a run on these cores (None: all), and who watched it when."""
    experiment, out = bench.scratch() / "search", bench.scratch()
    trials, seconds = bench.size(10_000, 60), bench.size(_PHASE_S, 1)
    bench.say(f"  writing {trials:,} trials, {_RUNNING} of which run ...")
    write_search(experiment, trials=trials, running=_RUNNING)
    run = LiveRun(experiment, out, rate=_RATE, trials=_RUNNING, cores=cores)
    phases: list[Phase] = []
    try:
        run.wait_until_steady()
        for turn in range(bench.runs):
            for watcher in _WATCHERS if turn % 2 == 0 else reversed(_WATCHERS):
                bench.say(f"  {seconds} s of the run, watched by {watcher} ...")
                phases.append(phase(run, watcher, seconds, browser))
        return run.end(), phases
    finally:
        run.close()


def _hindered(
    reports: Sequence[tuple[float, float]], phases: Sequence[Phase], where: str
) -> list[Row]:
    taken = {
        watcher: [1000 * p99(reports, one) for one in phases if one.watcher == watcher]
        for watcher in _WATCHERS
    }
    return [
        Row(
            work=f"report() at {_RATE:,}/s, p99, watched by {_BY[watcher]}{where}",
            unit="ms",
            ours=taken[watcher],
            reference=taken["nobody"],
            reference_name="without a watcher",
            goal=_UNHINDERED,
        )
        for watcher in _BY
    ]


def _used(phases: Sequence[Phase]) -> list[Row]:
    by = {name: [one for one in phases if one.watcher == name] for name in _BY}
    servers = [
        Row(
            work=f"CPU of the server, {_RATE:,} reports/s, watched by {_BY[name]}, of one core",
            unit="%",
            ours=[100 * one.server_cpu for one in several],
            goal=_CPU,
        )
        for name, several in by.items()
    ]
    browsers = [
        Row(
            work=f"CPU of {_BY[name]} then, of one core",
            unit="%",
            ours=[100 * one.browser_cpu for one in by[name]],
        )
        for name in ("browser", "curves")
    ]
    return [*servers, *browsers]
