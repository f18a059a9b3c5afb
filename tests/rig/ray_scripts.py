"""Runs a script as a user of Ray writes it: once to its end, and once killed and started again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.rig import checker, held_reports
from tests.rig.bench import Bench, workbench
from tests.rig.script import UserScript


def runs_and_resumes(folder: Path, script: Path, *, warnings: str = "error") -> None:
    """Raises AssertionError unless `holdfast ray SCRIPT` reaches a line that begins with DONE,
    also if it is killed after a report and started again: then it resumes the same experiments.

    `warnings` is what Python does with warnings.
    """
    with ExitStack() as stack:
        first, second = (
            stack.enter_context(workbench(folder / name, script)) for name in ("first", "second")
        )
        _ends_well(_start(first, warnings))

        second.environ |= held_reports.environ_for(min(2, _reports(first)))
        gate = second.gate(held_reports.REPORTED)
        killed = _start(second, warnings)
        killed.wait_for(held_reports.REPORTED)
        killed.dies()
        assert "DONE" not in killed.stdout
        gate.open()
        _ends_well(_start(second, warnings))

        roots = experiments(second)
        assert [root.name for root in roots] == [root.name for root in experiments(first)]
        # One was running when the script was killed.
        assert max(checker.fold(root).incarnations for root in roots) == 2
        assert [problem for root in roots for problem in _problems(root)] == []


def experiments(bench: Bench) -> Sequence[Path]:
    """The folders of the experiments that have begun."""
    return sorted(journal.parent for journal in bench.folder.rglob("journal"))


def _problems(root: Path) -> list[str]:
    """What is wrong with an experiment that has ended."""
    found = checker.check(root)
    # A script's own config may have a path of this machine.
    return [one for one in found if ".config." not in one]


def _start(bench: Bench, warnings: str) -> UserScript:
    words = ("-W", warnings, "-m", "holdfast", "ray", str(bench.script))
    return bench.run(Path(words[0]), *words[1:])


def _ends_well(script: UserScript) -> None:
    script.succeeds()
    assert script.left() == []
    lines = script.stdout.splitlines()
    assert any(line.startswith("DONE") for line in lines), script.stdout + script.stderr


def _reports(bench: Bench) -> int:
    """How many reports a trial has made, at most."""
    counts: Counter[tuple[Path, str]] = Counter()
    for root in experiments(bench):
        for name, trial in checker.fold(root).trials.items():
            counts[root, name] = len(trial.rows)
    return max(counts.values())
