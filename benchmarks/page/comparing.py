"""The page of holdfast and optuna-dashboard, in turns, on the same experiment."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.measure import Bench
from benchmarks.page import optuna
from benchmarks.page.chromium import TABLE, Chromium, painted, shown_s
from benchmarks.page.server import Server, holdfast_web
from benchmarks.rows import Row
from holdfast.dataclass import dataclass

if TYPE_CHECKING:
    from playwright.sync_api import Page

_TURNS = 3
# optuna-dashboard takes minutes for 10,000 trials.
_DEADLINE_MS = 1_200_000
_SETTLES_MS = 4_000
_IDLE_MS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """A page from the start of its server's process; `cpu_s` are the CPU seconds of server and
    chromium until then, `cpu` is the server's share of a core while the page is open and nothing
    happens."""

    shown_s: float
    cpu_s: float
    memory_mib: float
    cpu: float
    curves_s: float = 0.0


def compared(bench: Bench, browser: Chromium, experiment: Path, database: Path) -> list[Row]:
    """Rows that compare the two. `database` has the study, or is made. Raises ScriptFailed."""
    programs = optuna.made_environment()
    exported_s = []
    if not database.exists():
        bench.say("  exporting to Optuna ...")
        exported_s.append(optuna.export(programs, experiment, database))
    ours, theirs = [], []
    for turn in range(min(bench.runs, _TURNS)):
        bench.say(f"  page and optuna-dashboard {turn + 1} of {min(bench.runs, _TURNS)} ...")
        with holdfast_web(experiment) as server, browser.page() as page:
            ours.append(_seen(server, browser, page, TABLE))
        with optuna.dashboard(programs, database) as server, browser.page() as page:
            page.set_default_timeout(_DEADLINE_MS)
            theirs.append(_seen(server, browser, page, optuna.POINT, optuna.CURVES))
    named = optuna.version(programs)

    def row(work: str, unit: str, measured: Callable[[_Seen], float]) -> Row:
        return Row(
            work=work,
            unit=unit,
            ours=list(map(measured, ours)),
            reference=list(map(measured, theirs)),
            reference_name=named,
        )

    idle = "CPU of the server, the page is open and nothing happens, of one core"
    return [
        row(
            "page from the start of its server, in turns with optuna-dashboard",
            "s",
            lambda one: one.shown_s,
        ),
        row("CPU of server and chromium until then", "s", lambda one: one.cpu_s),
        row("memory of the server then (PSS)", "MiB", lambda one: one.memory_mib),
        row(idle, "%", lambda one: 100 * one.cpu),
        Row(
            work=f"{named} draws the curves of all trials, from the start of its server",
            unit="s",
            ours=[one.curves_s for one in theirs],
        ),
        Row(work="export to Optuna's SQLite", unit="s", ours=exported_s, note="there already"),
    ]


def _seen(server: Server, browser: Chromium, page: Page, trial: str, curve: str = "") -> _Seen:
    browsers_s = browser.cpu_s
    shown = shown_s(page, server.url, trial, began_s=server.began_s)
    used_s = server.cpu_s + browser.cpu_s - browsers_s
    curves = 0.0
    if curve:
        painted(page, curve)
        curves = server.since_start_s
    page.wait_for_timeout(_SETTLES_MS)
    before_s, began_s = server.cpu_s, server.since_start_s
    page.wait_for_timeout(_IDLE_MS)
    cpu = (server.cpu_s - before_s) / (server.since_start_s - began_s)
    return _Seen(
        shown_s=shown, cpu_s=used_s, memory_mib=server.memory_mib, cpu=cpu, curves_s=curves
    )
