"""The figures of the live page in chromium, for 10,000 trials and a million rows.

The run with watchers is a restore of such an experiment in which ten trials report a hundred times
a second each. It is watched in turns by nobody, by a client that only reads the stream (as of a
browser on another machine), and by chromium on this one.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING

from benchmarks.measure import Bench
from benchmarks.page.chromium import TABLE, Chromium, chromium, shown_s
from benchmarks.page.comparing import compared
from benchmarks.page.live import LiveRun, Phase, p99, phase
from benchmarks.page.search import write_search
from benchmarks.page.server import holdfast_web
from benchmarks.rows import Goal, Row

if TYPE_CHECKING:
    from playwright.sync_api import Page

_SHOWN = Goal(of="ours", bound=2.0)
_CURVES = Goal(of="ours", bound=1.0)
_MEMORY = Goal(of="ours", bound=300.0)
_UNHINDERED = Goal(of="ratio", bound=1.1)
_CPU = Goal(of="ours", bound=2.0)
_SELECTED = 200
_RATE = 1_000
_RUNNING = 10
_PHASE_S = 15
_IDLE_S = 4.0
# Changes the selection, and resolves to the milliseconds until its curves are painted.
_SELECT = """async ([hash, count]) => {
  const began = performance.now();
  location.hash = hash;
  const frame = () => new Promise(done => requestAnimationFrame(done));
  const label = () => document.querySelector("#charts .chart-host")?.getAttribute("aria-label");
  const drawn = () => performance.getEntriesByType("measure").some(
    one => one.startTime > began && one.name.startsWith("chart: Learning curves"));
  while (!(label()?.startsWith(`Learning curves of ${count} trials`) && drawn())) await frame();
  await frame();
  await frame();
  return performance.now() - began;
}"""


def measure(bench: Bench) -> list[Row]:
    with chromium() as browser:
        return [*_opened(bench, browser), *_live(bench, browser)]


def _opened(bench: Bench, browser: Chromium) -> list[Row]:
    trials = bench.size(10_000, 60)
    experiment = bench.scratch() / "search"
    bench.say(f"  writing {trials:,} trials ...")
    what = f"{trials:,} trials, {write_search(experiment, trials=trials):,} rows"
    cold, warm, bands, lines, memory, used = ([] for _ in range(6))
    for turn in range(bench.runs):
        bench.say(f"  page {turn + 1} of {bench.runs} ...")
        with holdfast_web(experiment) as server:
            with browser.page() as page:
                cold.append(shown_s(page, server.url, TABLE, began_s=server.began_s))
                page.wait_for_timeout(1000 * _IDLE_S)
            with browser.page() as page:
                warm.append(shown_s(page, server.url, TABLE))
                page.wait_for_timeout(1000 * _IDLE_S)
                ids = _drawn(trials, 2 * turn)
                bands.append(_select(page, experiment.name, ids, ""))
                ids = _drawn(trials, 2 * turn + 1)
                lines.append(_select(page, experiment.name, ids, "&spread=lines"))
                memory.append(server.memory_mib)
                used.append(browser.memory_mib)
    selected = min(_SELECTED, trials)
    mine = [
        Row(
            work=f"page of {what}, from the start of its server", unit="s", ours=cold, goal=_SHOWN
        ),
        Row(work="the same, the server has read the experiment", unit="s", ours=warm, goal=_SHOWN),
        Row(work=f"curves of {selected} trials as a band", unit="s", ours=bands, goal=_CURVES),
        Row(work=f"curves of {selected} trials as lines", unit="s", ours=lines, goal=_CURVES),
        Row(work="memory of the server (PSS)", unit="MiB", ours=memory, goal=_MEMORY),
        Row(work="memory of chromium (PSS)", unit="MiB", ours=used),
    ]
    if not bench.with_optuna:
        return mine
    return [*mine, *compared(bench, browser, experiment, experiment.parent / "trials.db")]


def _drawn(trials: int, seed: int) -> list[str]:
    numbers = Random(seed).sample(range(trials), min(_SELECTED, trials))
    return [f"d2a66_{number:05}" for number in numbers]


def _select(page: Page, key: str, ids: Sequence[str], view: str) -> float:
    hash_ = f"#/e/{key}?sel={','.join(ids)}{view}"
    taken_ms: float = page.evaluate(_SELECT, [hash_, len(ids)])
    page.wait_for_timeout(1000)
    return taken_ms / 1000


def _live(bench: Bench, browser: Chromium) -> list[Row]:
    experiment, out = bench.scratch() / "search", bench.scratch()
    trials, seconds = bench.size(10_000, 60), bench.size(_PHASE_S, 1)
    bench.say(f"  writing {trials:,} trials, {_RUNNING} of which run ...")
    write_search(experiment, trials=trials, running=_RUNNING)
    run = LiveRun(experiment, out, rate=_RATE, trials=_RUNNING)
    phases: list[Phase] = []
    try:
        run.wait_until_steady()
        for turn in range(bench.runs):
            order = ("nobody", "the stream", "browser")
            for watcher in order if turn % 2 == 0 else reversed(order):
                bench.say(f"  {seconds} s of the run, watched by {watcher} ...")
                phases.append(phase(run, watcher, seconds, browser))
        reports = run.end()
    finally:
        run.close()
    taken = {
        watcher: [1000 * p99(reports, one) for one in phases if one.watcher == watcher]
        for watcher in ("nobody", "the stream", "browser")
    }
    return [*_hindered(taken), *_used(phases)]


def _hindered(taken: dict[str, list[float]]) -> list[Row]:
    by = {"the stream": "a reader of the page's stream", "browser": "chromium on this machine"}
    return [
        Row(
            work=f"report() at {_RATE:,}/s, p99, watched by {by[watcher]}",
            unit="ms",
            ours=taken[watcher],
            reference=taken["nobody"],
            reference_name="without a watcher",
            goal=_UNHINDERED,
        )
        for watcher in by
    ]


def _used(phases: Sequence[Phase]) -> list[Row]:
    watched = [one for one in phases if one.watcher == "browser"]
    read = [one for one in phases if one.watcher == "the stream"]
    return [
        Row(
            work=f"CPU of the server, {_RATE:,} reports/s, chromium shows the page, of one core",
            unit="%",
            ours=[100 * one.server_cpu for one in watched],
            goal=_CPU,
        ),
        Row(
            work="the same, only the stream is read",
            unit="%",
            ours=[100 * one.server_cpu for one in read],
        ),
        Row(
            work="CPU of chromium then, of one core",
            unit="%",
            ours=[100 * one.browser_cpu for one in watched],
        ),
    ]
