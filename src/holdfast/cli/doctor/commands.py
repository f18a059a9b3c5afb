"""The doctor's commands: find the experiment, do the work, print the result."""

from __future__ import annotations

import argparse
import os
import sys
import time

from holdfast.cli.doctor.output import show_preflight, show_report
from holdfast.cli.printing import SOUND, WRONG, json_text, quoted
from holdfast.experiment.doctor.findings import DoctorReport
from holdfast.experiment.doctor.target import DoctorTarget, find_target
from holdfast.experiment.doctor.verify import Depth
from holdfast.experiment.folder.settings import Settings
from holdfast.names import printable


def perform(given: argparse.Namespace, settings: Settings) -> int:
    """Returns the exit code. Raises the errors of the command."""
    if given.doctor_command == "preflight":
        from holdfast.experiment.doctor.preflight import preflight

        report = preflight(given.path, settings, large_bytes=max(1, given.mib) << 20)
        show_preflight(report, as_json=given.json)
        return SOUND if report.is_sound else WRONG
    if given.doctor_command == "report":
        from holdfast.experiment.doctor.bug_report import bug_report

        print(json_text(bug_report(given.path, settings, os.environ, time.time())))
        return SOUND
    target = find_target(given.path, given.storage, settings, os.environ)
    done = _perform(given, target, settings)
    deep = bool(getattr(given, "deep", False))
    show_report(done, given.doctor_command, as_json=given.json, named=_named(given), deep=deep)
    return SOUND if done.is_sound else WRONG


def _perform(given: argparse.Namespace, target: DoctorTarget, settings: Settings) -> DoctorReport:
    match given.doctor_command:
        case "verify":
            from holdfast.experiment.doctor.verify import verify

            return verify(target, depth=_depth(given))
        case "repair":
            from holdfast.experiment.doctor.repair import repair

            return repair(target, settings, depth=_depth(given))
        case "sync":
            from holdfast.experiment.doctor.upload import sync

            return sync(
                target,
                timeout_s=given.timeout,
                downloads=given.deep,
                tell=lambda text: print(printable(text), file=sys.stderr, flush=True),
                progress=_progress,
            )
        case "gc":
            from holdfast.experiment.doctor.collect import collect

            return collect(target, removes=given.yes)
        case _:
            raise AssertionError(given.doctor_command)


def _depth(given: argparse.Namespace) -> Depth:
    return Depth.QUICK if given.quick else Depth.DOWNLOAD if given.deep else Depth.CHECKSUMS


def _progress(done: int, total: int) -> None:
    if sys.stderr.isatty():
        end = "\n" if done == total else ""
        print(f"\r{done} of {total} checkpoints", end=end, file=sys.stderr, flush=True)


def _named(given: argparse.Namespace) -> str:
    """The arguments that name the same experiment for another command of the doctor."""
    storage = f" --storage {quoted(given.storage)}" if given.storage else ""
    return f"{quoted(given.path)}{storage}"
