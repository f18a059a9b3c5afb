"""Scripts as users of Ray write them run unchanged, and resume after a kill."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rig import checker, held_reports
from tests.rig.bench import Bench, workbench
from tests.rig.script import UserScript

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.py"))


@pytest.fixture
def first(tmp_path: Path) -> Iterator[Bench]:
    with workbench(tmp_path / "first", Path()) as made:
        yield made


@pytest.fixture
def second(tmp_path: Path) -> Iterator[Bench]:
    with workbench(tmp_path / "second", Path()) as made:
        yield made


def run(bench: Bench, script: Path) -> UserScript:
    """`holdfast ray SCRIPT`, in the folder of its own results."""
    return bench.run(Path("-m"), "holdfast", "ray", str(script))


def experiments(bench: Bench) -> list[Path]:
    """The folders of the experiments that have begun."""
    return sorted(journal.parent for journal in bench.folder.rglob("journal"))


def reports(bench: Bench) -> int:
    """How many reports a trial has made, at most."""
    counts: Counter[tuple[Path, str]] = Counter()
    for root in experiments(bench):
        for name, trial in checker.fold(root).trials.items():
            counts[root, name] = len(trial.rows)
    return max(counts.values())


def ends_well(script: UserScript) -> None:
    script.succeeds()
    assert script.left() == []
    assert any(line.startswith("DONE") for line in script.stdout.splitlines()), script.stdout


@pytest.mark.process
@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_runs_unchanged_and_resumes_after_a_kill(
    first: Bench, second: Bench, path: Path
) -> None:
    ends_well(run(first, path))

    second.environ |= held_reports.environ_for(min(2, reports(first)))
    gate = second.gate(held_reports.REPORTED)
    script = run(second, path)
    script.wait_for(held_reports.REPORTED)
    script.dies()
    assert "DONE" not in script.stdout
    gate.open()
    ends_well(run(second, path))

    names = [root.name for root in experiments(first)]
    assert [root.name for root in experiments(second)] == names
    # One was running when the script was killed.
    assert max(checker.fold(root).incarnations for root in experiments(second)) == 2
    assert [problem for root in experiments(second) for problem in checker.check(root)] == []
