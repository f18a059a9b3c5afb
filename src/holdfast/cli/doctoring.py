"""The doctor's commands: find the experiment, do the work, print the result."""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from holdfast.cli.printing import SOUND, WRONG, json_text, quoted, say, show_progress
from holdfast.experiment.folder.settings import Settings
from holdfast.names import printable
from holdfast.results.doctor.findings import Action, DoctorReport, Finding, Remedy, Severity
from holdfast.results.doctor.reports import PreflightReport
from holdfast.results.doctor.verify import Depth
from holdfast.results.reading import ExperimentSite, find_site
from holdfast.syncer.stores.preflight import ProbeOutcome, Step
from holdfast.text.values import size

T = TypeVar("T")
_COLOURS = {
    Severity.ERROR: "bold red",
    Severity.WARNING: "yellow",
    Severity.NOTE: "dim",
    ProbeOutcome.OK: "green",
    ProbeOutcome.WEAK: "yellow",
    ProbeOutcome.FAILED: "bold red",
    ProbeOutcome.SKIPPED: "dim",
}
# The number of findings of one kind that are printed; the rest are counted. --json has all.
_SHOWN = 8
_WIDTH = 100
_INDENT = " " * 9


def perform(given: argparse.Namespace, settings: Settings) -> int:
    """Returns the exit code. Raises the errors of the command."""
    if given.doctor_command == "preflight":
        from holdfast.results.doctor.reports import preflight

        report = preflight(given.path, settings, large_bytes=max(1, given.mib) << 20)
        if given.json:
            print(json_text(report.plain()))
        else:
            _show_preflight(report)
        return SOUND if report.is_sound else WRONG
    if given.doctor_command == "report":
        from holdfast.results.doctor.reports import bug_report

        print(json_text(bug_report(given.path, settings, os.environ, time.time())))
        return SOUND
    target = find_site(given.path, given.storage, settings, os.environ)
    done = _perform(given, target, settings)
    if given.json:
        print(json_text(done.plain()))
    else:
        _show_report(done, given)
    return SOUND if done.is_sound else WRONG


def _perform(
    given: argparse.Namespace, target: ExperimentSite, settings: Settings
) -> DoctorReport:
    match given.doctor_command:
        case "verify":
            from holdfast.results.doctor.verify import verify

            return verify(target, depth=_depth(given))
        case "repair":
            from holdfast.results.doctor.repair import repair

            return repair(target, settings, depth=_depth(given))
        case "sync":
            from holdfast.results.doctor.upload import sync

            return sync(
                target,
                timeout_s=given.timeout,
                downloads=given.deep,
                tell=lambda text: print(printable(text), file=sys.stderr, flush=True),
                progress=partial(show_progress, "checkpoints"),
            )
        case "gc":
            from holdfast.results.doctor.repair import collect

            return collect(target, removes=given.yes)
        case _:
            raise AssertionError(given.doctor_command)


def _depth(given: argparse.Namespace) -> Depth:
    return Depth.QUICK if given.quick else Depth.DOWNLOAD if given.deep else Depth.CHECKSUMS


def _named(given: argparse.Namespace) -> str:
    """The arguments that name the same experiment for another command of the doctor."""
    storage = f" --storage {quoted(given.storage)}" if given.storage else ""
    return f"{quoted(given.path)}{storage}"


def _show_report(report: DoctorReport, given: argparse.Namespace) -> None:
    say(f"{report.path}: {_checked(report)}")
    _print_first(report.actions, lambda action: action.what.partition(":")[0], _print_action)
    _print_first(report.findings, lambda finding: finding.kind, _print_finding)
    say(_verdict(report, given.doctor_command))
    for text in _next_commands(report, given):
        say(f"  {text}")


def _show_preflight(report: PreflightReport) -> None:
    """Print each step, and whether a run can be stored there."""
    say(report.path)
    for step in report.steps:
        _print_step(step)
    weak = any(step.outcome is ProbeOutcome.WEAK for step in report.steps)
    if not report.is_sound:
        say("A run cannot be stored here.")
    else:
        say("A run can be stored here." if not weak else "A run can be stored here, see above.")


def _print_first(
    items: Sequence[T], kind_of: Callable[[T], str], print_item: Callable[[T], None]
) -> None:
    """Print the first ones of each kind, then the number of the others."""
    counts: Counter[str] = Counter()
    for item in items:
        kind = kind_of(item)
        counts[kind] += 1
        if counts[kind] <= _SHOWN:
            print_item(item)
    if more := sum(max(0, count - _SHOWN) for count in counts.values()):
        say(f"{_INDENT}and {more} more of the same kind (--json has them all)")


def _print_finding(finding: Finding) -> None:
    say(f"{finding.severity.upper():9}{finding.where}", _COLOURS[finding.severity])
    for text in (finding.what, finding.advice):
        _print_paragraph(text)


def _print_action(action: Action) -> None:
    say(f"{'done' if action.is_done else 'garbage':9}{action.where}")
    _print_paragraph(action.what)


def _print_step(step: Step) -> None:
    speed = "" if step.mib_per_s is None else f", {size(step.mib_per_s * (1 << 20))}/s"
    took = f"{1000 * step.seconds:7.0f} ms" if step.seconds else " " * 10
    line = f"  {step.name:16}{step.outcome:8}{took}  {step.told}{speed}"
    say(line.rstrip(), _COLOURS[step.outcome])
    _print_paragraph(step.meaning)


def _print_paragraph(text: str) -> None:
    width = _WIDTH - len(_INDENT)
    for line in textwrap.wrap(text, width, break_on_hyphens=False, break_long_words=False):
        say(f"{_INDENT}{line}")


def _checked(report: DoctorReport) -> str:
    """`3 trials, 12 checkpoints (1.2 MB); 0.4 s`."""
    counts = report.looked_at
    parts = []
    for name, count in counts.items():
        if not name.endswith("_bytes"):
            amount = counts.get(f"{name.removesuffix('s')}_bytes")
            parts.append(f"{count} {name}" + ("" if amount is None else f" ({size(amount)})"))
    if "downloaded_bytes" in counts:
        parts.append(f"{size(counts['downloaded_bytes'])} downloaded")
    return f"{', '.join(parts) or 'no records'}; {report.seconds:.1f} s"


def _verdict(report: DoctorReport, command: str) -> str:
    if command == "gc" and report.is_sound:
        return _gc_summary(report.actions)
    counts = Counter(finding.severity for finding in report.findings)
    wrong = [
        f"{counts[severity]} {severity}{'s' if counts[severity] > 1 else ''}"
        for severity in (Severity.ERROR, Severity.WARNING)
        if counts[severity]
    ]
    return f"{', '.join(wrong)}." if wrong else "Sound."


def _gc_summary(actions: Sequence[Action]) -> str:
    if any(action.is_done for action in actions):
        return "Removed."
    return "Nothing is removed yet." if actions else "There is nothing to remove."


def _next_commands(report: DoctorReport, given: argparse.Namespace) -> list[str]:
    command, named = given.doctor_command, _named(given)
    deep = getattr(given, "deep", False)  # storage was read
    if command == "gc" and not all(action.is_done for action in report.actions):
        return [f"holdfast doctor gc --yes {named}   removes them"]
    remedies = {finding.remedy for finding in report.findings}
    if command != "verify":  # it has repaired what it could
        remedies.discard(Remedy(command))
    return [
        f"holdfast doctor {remedy}{' --deep' * (deep and remedy is Remedy.SYNC)} {named}   {does}"
        for remedy, does in _REMEDIES.items()
        if remedy in remedies
    ]


_REMEDIES = {
    Remedy.REPAIR: "repairs what can be repaired here",
    Remedy.SYNC: "commits and uploads the rest",
    Remedy.GC: "shows files that nothing needs",
}
