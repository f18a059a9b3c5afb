"""A slow search of the user's, in a real run: asked ahead, and restored."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.experiment.folder.layout import Layout
from holdfast.experiment.records.journal import read_events
from holdfast.scheduler.effects import Effect
from holdfast.scheduler.events import Event, Suggested, SuggestedAhead
from holdfast.scheduler.machine import Machine
from holdfast.tune.search import Searcher

RUNNING = 2


class Paced(Searcher):
    """Takes longer than a fast search. It raises once, when it is asked for the fifth trial."""

    look_ahead = 1.0

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def note(self, text: str) -> None:
        with (self.folder / "calls").open("a") as file:
            file.write(text + "\n")

    def suggest(self, trial_id: str) -> dict[str, Any]:
        number = int(trial_id.rpartition("_")[2])
        self.note(f"suggest {number}")
        time.sleep(0.06)
        if number == 2 * RUNNING and not (self.folder / "raised").exists():
            (self.folder / "raised").touch()
            raise RuntimeError("no fifth one")
        return {"number": number, "folder": str(self.folder)}

    def recall(self, trial_id: str, config: dict[str, Any]) -> None:
        self.note(f"recall {config['number']}")


@contextmanager
def held_until_two_are_ahead(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Inside, the first trials run until the machine has the suggestions for two more."""
    handle, writers = Machine.handle, list[int]()

    def handling(machine: Machine, event: Event, **more: Any) -> list[Effect]:
        effects = handle(machine, event, **more)
        if isinstance(event, SuggestedAhead) and (event.suggestion.spec.index == 2 * RUNNING - 1):
            (folder / "over").touch()
            # This does not wait for a reader, and one that comes later does not wait for this.
            writers.extend(os.open(folder / f"{n}", os.O_RDWR) for n in range(RUNNING))
        return effects

    with monkeypatch.context() as patched:
        patched.setattr(Machine, "handle", handling)
        yield
    for writer in writers:
        os.close(writer)


def until_asked_ahead(config: dict[str, Any]) -> None:
    folder = Path(config["folder"])
    if config["number"] < RUNNING and not (folder / "over").exists():
        (folder / str(config["number"])).open().close()
    tune.report({"ok": 1})


def test_a_slow_search_is_asked_while_all_workers_are_busy_and_a_restore_loses_no_answer(
    fit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "search"
    folder.mkdir()
    for waiting in range(RUNNING):
        os.mkfifo(folder / f"{waiting}")
    tuning = tune.TuneConfig(
        search_alg=Paced(folder), num_samples=6, max_concurrent_trials=RUNNING
    )
    with (
        held_until_two_are_ahead(folder, monkeypatch),
        pytest.raises(RuntimeError, match="no fifth one"),
    ):
        fit(until_asked_ahead, {}, tuning, name="run")
    root = tmp_path / "results" / "run"
    events = [record.event for record, _ in read_events(Layout(root).journal)]
    begun = Counter(event.spec.trial_id for event in events if isinstance(event, Suggested))
    ahead = [
        one.suggestion.spec.trial_id[-1:] for one in events if isinstance(one, SuggestedAhead)
    ]
    assert ahead == ["2", "3"]
    assert set(begun.values()) == {1}

    results = tune.Tuner.restore(str(root), until_asked_ahead).fit()
    assert sorted((result.config or {})["number"] for result in results) == list(range(6))
    calls = (folder / "calls").read_text().splitlines()
    asked = [f"suggest {number}" for number in range(5)]
    recalled = [f"recall {number}" for number in range(4)]
    assert calls == [*asked, *recalled, "suggest 4", "suggest 5"]
