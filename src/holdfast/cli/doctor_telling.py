"""Prints findings: plain lines, with colour in a terminal; JSON for scripts."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

from holdfast.cli.saying import json_text, say
from holdfast.experiment.doctor.findings import Deed, DoctorReport, Finding, Remedy, Severity
from holdfast.experiment.doctor.preflight import PreflightReport
from holdfast.experiment.progress.wording import size
from holdfast.syncer.stores.probing import ProbeOutcome, Step

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


def show_report(
    report: DoctorReport, command: str, *, as_json: bool, named: str, deep: bool = False
) -> None:
    """`named` is the experiment's argument for another command; `deep`: storage was read."""
    if as_json:
        print(json_text(report.plain()))
        return
    say(f"{report.path}: {_looked_at(report)}")
    _some(report.deeds, lambda deed: deed.what.partition(":")[0], _tell_deed)
    _some(report.findings, lambda finding: finding.kind, _tell_finding)
    say(_verdict(report, command))
    for text in _next_commands(report, command, named, deep=deep):
        say(f"  {text}")


def show_tried(tried: PreflightReport, *, as_json: bool) -> None:
    if as_json:
        print(json_text(tried.plain()))
        return
    say(tried.path)
    for step in tried.steps:
        _tell_step(step)
    weak = any(step.outcome is ProbeOutcome.WEAK for step in tried.steps)
    if not tried.is_sound:
        say("A run cannot be stored here.")
    else:
        say("A run can be stored here." if not weak else "A run can be stored here, see above.")


def _some(items: Sequence[T], kind: Callable[[T], str], show: Callable[[T], None]) -> None:
    """Show the first ones of each kind, then the number of the others."""
    seen: Counter[str] = Counter()
    for item in items:
        seen[kind(item)] += 1
        if seen[kind(item)] <= _SHOWN:
            show(item)
    if more := sum(max(0, count - _SHOWN) for count in seen.values()):
        say(f"{_INDENT}and {more} more of the same kind (--json has them all)")


def _tell_finding(finding: Finding) -> None:
    say(f"{finding.severity.upper():9}{finding.where}", _COLOURS[finding.severity])
    for text in (finding.what, finding.advice):
        _paragraph(text)


def _tell_deed(deed: Deed) -> None:
    say(f"{'done' if deed.is_done else 'garbage':9}{deed.where}")
    _paragraph(deed.what)


def _tell_step(step: Step) -> None:
    speed = "" if step.mib_per_s is None else f", {size(step.mib_per_s * (1 << 20))}/s"
    took = f"{1000 * step.seconds:7.0f} ms" if step.seconds else " " * 10
    line = f"  {step.name:16}{step.outcome:8}{took}  {step.told}{speed}"
    say(line.rstrip(), _COLOURS[step.outcome])
    _paragraph(step.meaning)


def _paragraph(text: str) -> None:
    width = _WIDTH - len(_INDENT)
    for line in textwrap.wrap(text, width, break_on_hyphens=False, break_long_words=False):
        say(f"{_INDENT}{line}")


def _looked_at(report: DoctorReport) -> str:
    counts = report.looked_at
    told = []
    for name, count in counts.items():
        if not name.endswith("_bytes"):
            amount = counts.get(f"{name.removesuffix('s')}_bytes")
            told.append(f"{count} {name}" + ("" if amount is None else f" ({size(amount)})"))
    if "downloaded_bytes" in counts:
        told.append(f"{size(counts['downloaded_bytes'])} downloaded")
    return f"{', '.join(told) or 'no records'}; {report.seconds:.1f} s"


def _verdict(report: DoctorReport, command: str) -> str:
    if command == "gc" and report.is_sound:
        return "Removed." if any(deed.is_done for deed in report.deeds) else _would_go(report)
    counts = Counter(finding.severity for finding in report.findings)
    wrong = [
        f"{counts[severity]} {severity}{'s' if counts[severity] > 1 else ''}"
        for severity in (Severity.ERROR, Severity.WARNING)
        if counts[severity]
    ]
    return f"{', '.join(wrong)}." if wrong else "Sound."


def _would_go(report: DoctorReport) -> str:
    return "Nothing is removed yet." if report.deeds else "There is nothing to remove."


def _next_commands(report: DoctorReport, command: str, named: str, *, deep: bool) -> list[str]:
    if command == "gc":
        would = any(not deed.is_done for deed in report.deeds)
        if would:
            return [f"holdfast doctor gc --yes {named}   removes them"]
    wanted = {finding.remedy for finding in report.findings}
    if command != "verify":  # it has repaired what it could
        wanted -= {Remedy(command)}
    return [
        f"holdfast doctor {remedy}{' --deep' * (deep and remedy is Remedy.SYNC)} {named}   {told}"
        for remedy, told in _REMEDIES.items()
        if remedy in wanted
    ]


_REMEDIES = {
    Remedy.REPAIR: "repairs what can be repaired here",
    Remedy.SYNC: "commits and uploads the rest",
    Remedy.GC: "shows files that nothing needs",
}
