"""The runs of contestants on external tasks, and the files that store their regrets.

One file for each contestant, so that several people may run different ones at the same time:
`benchmarks/data/external/<name>.json`.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.quality.external import BUDGETS, MOST, field_of, regrets
from benchmarks.quality.external.contestants import Contestant
from benchmarks.quality.results import OURS
from benchmarks.quality.running import Absent, answers_of
from benchmarks.tasks.catalogue import task as task_of

FOLDER = Path(__file__).resolve().parents[2] / "data" / "external"

Regrets = dict[float, float]
"""The regret at each budget."""
Say = Callable[[str], object]


@dataclass(slots=True, kw_only=True)
class Runs:
    """The runs of one contestant: by (task, workers) and seed. `failed`: why there are no more."""

    version: str = ""
    failed: str = ""
    runs: dict[tuple[str, int], dict[int, Regrets]] = field(default_factory=dict)

    def of(self, task: str, workers: int) -> dict[int, Regrets]:
        return self.runs.setdefault((task, workers), {})


def read(name: str, folder: Path = FOLDER) -> Runs:
    """Empty if there is no file."""
    file = _file(name, folder)
    if not file.exists():
        return Runs()
    kept = json.loads(file.read_text())
    return Runs(
        version=kept["version"],
        failed=kept["failed"],
        runs={
            (row["task"], row["workers"]): {
                int(seed): {float(budget): regret for budget, regret in found.items()}
                for seed, found in row["seeds"].items()
            }
            for row in kept["runs"]
        },
    )


def write(name: str, found: Runs, folder: Path = FOLDER) -> None:
    """One line for each task, so that a diff shows what has changed."""
    rows = [
        json.dumps({"task": task, "workers": workers, "seeds": dict(sorted(seeds.items()))})
        for (task, workers), seeds in sorted(found.runs.items())
        if seeds
    ]
    head = f'"version": {json.dumps(found.version)}, "failed": {json.dumps(found.failed)}'
    folder.mkdir(parents=True, exist_ok=True)
    text = f'{{{head}, "runs": [\n' + ",\n".join(rows) + "\n]}\n"
    _file(name, folder).write_text(text)


def _file(name: str, folder: Path) -> Path:
    slug = "-".join("".join(c if c.isalnum() else " " for c in name.lower()).split())
    return folder / f"{slug}.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The runs to make: each of `tasks` with each number of workers, for seeds from 0 on."""

    tasks: Sequence[str]
    workers: Sequence[int]
    seeds: int
    budget: float
    again: bool = False


def run_all(
    contestants: Sequence[Contestant], asked: Asked, *, processes: int, folder: Path, say: Say
) -> None:
    """Run what the files lack, each contestant in a process of its own."""
    with ThreadPoolExecutor(processes) as pool:
        for _ in pool.map(lambda one: _run(one, asked, folder, say), contestants):
            pass


def _run(contestant: Contestant, asked: Asked, folder: Path, say: Say) -> None:
    found = Runs() if asked.again else read(contestant.name, folder)
    wanted = [one for one in _wanted(contestant, asked) if not _is_known(found, one)]
    if not wanted:
        return
    found.failed = ""
    answers = answers_of(contestant.side, [one.request for one in wanted])
    try:
        found.version = next(answers)["version"]
        for one, answer in zip(wanted, answers, strict=False):
            _note(found, one, answer)
            write(contestant.name, found, folder)
            say(f"{contestant.name} on {one.task}, seed {one.seed}: {answer['took_s']:.1f} s")
    except (Absent, StopIteration, subprocess.CalledProcessError) as error:
        found.failed = str(error) or "ended without an answer"
        write(contestant.name, found, folder)
        say(f"{contestant.name} failed: {found.failed}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """One run, and the budgets at which its regret is read."""

    algorithm: str
    task: str
    workers: int
    seed: int
    budgets: Sequence[float]

    @property
    def request(self) -> dict[str, Any]:
        return {
            "algorithm": self.algorithm,
            "task": self.task,
            "workers": self.workers,
            "trainings": field_of(self.budgets[-1], self.workers).trainings,
            "seeds": [self.seed],
        }


def _wanted(contestant: Contestant, asked: Asked) -> Iterator[Wanted]:
    """Seed by seed, so that what has been run so far is even over the tasks."""
    for workers in asked.workers:
        for seed in range(asked.seeds):
            for task in asked.tasks:
                family = task.partition("/")[0]
                if family not in contestant.families:
                    continue
                most = min(asked.budget, contestant.most, MOST[family])
                budgets = [budget for budget in BUDGETS if budget <= most]
                for some in [[one] for one in budgets] if contestant.each_budget else [budgets]:
                    yield Wanted(
                        algorithm=contestant.name if contestant.side == OURS
                        else contestant.algorithm,
                        task=task, workers=workers, seed=seed, budgets=some,
                    )  # fmt: skip


def _is_known(found: Runs, one: Wanted) -> bool:
    known = found.of(one.task, one.workers).get(one.seed, {})
    return all(budget in known for budget in one.budgets)


def _note(found: Runs, one: Wanted, answer: Mapping[str, Any]) -> None:
    (course,) = answer["courses"]
    points = [(at, value) for at, value in course]
    values = regrets(task_of(one.task), points, one.budgets, one.workers)
    kept = found.of(one.task, one.workers).setdefault(one.seed, {})
    kept.update(zip(one.budgets, values, strict=True))


def tasks_of(
    names: Iterable[str], *, count: int | None, of: Callable[[str], list[str]]
) -> list[str]:
    """The first `count` tasks of each family; all without it."""
    return [task for family in names for task in of(family)[:count]]
