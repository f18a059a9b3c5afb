"""The list of experiments in a place, and which names it answers to."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.experiment.folder.settings import Settings
from holdfast.results.catalog import entry_of
from holdfast.results.page import place as module
from holdfast.results.page.place import Place
from holdfast.results.reading import ExperimentNotFound
from holdfast.syncer.files.tree import NotRegular
from tests.rig.runs.recorded import RecordedExperiment


class Results:
    """A folder with two experiments, one of which has ended."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.ended = RecordedExperiment(root / "ended", metric="loss", mode="min")
        trial_id = self.ended.begin({"lr": 0.1})
        self.ended.report(trial_id, {"loss": 0.5})
        self.ended.finish(trial_id)
        self.open = RecordedExperiment(root / "open", options={"trials": 4}, num_samples=4)
        self.trial_id = self.open.begin()
        self.place = Place(str(root), Settings.read({}), {})

    def list(self) -> dict[str, dict[str, Any]]:
        answer = self.place.listing(now=self.open.now)
        return {entry["key"]: entry for entry in answer["experiments"]}

    def close(self) -> None:
        self.place.close()
        self.ended.close()
        self.open.close()


@pytest.fixture
def results(tmp_path: Path) -> Iterator[Results]:
    made = Results(tmp_path / "results")
    yield made
    made.close()


def test_the_list_has_what_a_page_of_experiments_shows(results: Results) -> None:
    (results.root / "notes").mkdir()
    (results.root / "broken" / "journal").mkdir(parents=True)
    (results.root / "broken" / "journal" / "000000.log").write_bytes(b"\0" * 100 + b"x")
    listed = results.list()
    assert set(listed) == {"ended", "open", "broken"}
    assert listed["broken"]["state"] == "unreadable"
    assert listed["ended"]["best"]["value"] == 0.5
    assert listed["open"]["progress"] == {"done": 0, "total": 4, "share": 0.0, "left_s": None}
    assert results.place.single is None
    assert set(results.place.sizes()) == set(listed)


def test_only_what_has_changed_is_read_again(
    results: Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    results.list()
    read: list[str] = []
    monkeypatch.setattr(module, "PAUSE_PER_CPU_S", 0)

    def counted(path: str, **given: Any) -> Any:
        read.append(Path(path).name)
        return entry_of(path, **given)

    monkeypatch.setattr(module, "entry_of", counted)
    results.place._known = {}
    results.list()
    assert sorted(read) == ["ended", "open"]
    results.list()
    results.open.report(results.trial_id, {"loss": 1.0})
    results.open.finish(results.trial_id)
    assert results.list()["open"]["trials"] == {"TERMINATED": 1}
    assert sorted(read) == ["ended", "open", "open"]


def test_a_live_experiment_has_an_estimate(results: Results) -> None:
    lock = os.open(results.open.layout.lock, os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        for _ in range(3):
            results.open.report(results.trial_id, {"loss": 1.0})
        results.open.finish(results.trial_id)
        second = results.open.begin()
        results.open.report(second, {"loss": 1.0})
        (entry,) = [one for one in results.list().values() if one["key"] == "open"]
        assert entry["state"] == "live"
        assert 0.25 < entry["progress"]["share"] < 1
        followed = results.place.experiment("open")
        assert followed.facts()["progress"]["share"] is not None
        assert results.list()["open"]["progress"]["share"] == pytest.approx(
            followed.facts()["progress"]["share"]
        )
    finally:
        os.close(lock)


@pytest.mark.parametrize(
    "key", ["", ".", "..", "../results/open", "open/journal", "/etc", "nothing", "open\0", "notes"]
)
def test_only_listed_names_are_experiments(results: Results, key: str) -> None:
    (results.root / "notes").mkdir()
    with pytest.raises(ExperimentNotFound):
        results.place.experiment(key)


def test_a_run_without_a_record_is_starting_while_a_process_has_its_lock(
    results: Results,
) -> None:
    (results.root / "new" / "journal").mkdir(parents=True)
    (results.root / "new" / "journal" / "000000.log").touch()
    lock = os.open(results.root / "new" / ".lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with pytest.raises(ExperimentNotFound, match="is starting: it has no record yet"):
        results.place.experiment("new")
    assert list(results.list())[-1] == "new"  # the newest, as in `holdfast ls`
    os.close(lock)
    with pytest.raises(ExperimentNotFound, match="ended before its first record"):
        results.place.experiment("new")


def test_one_experiment_is_a_place_of_its_own(results: Results) -> None:
    place = Place(str(results.root / "open"), Settings.read({}), {})
    assert place.single == "open"
    (entry,) = place.listing(now=time.time())["experiments"]
    assert entry["key"] == "open"
    assert place.experiment("open") is place.experiment("open")
    with pytest.raises(ExperimentNotFound):
        place.experiment("ended")
    place.close()
    with pytest.raises(ExperimentNotFound, match="there is no directory"):
        Place(str(results.root / "nothing"), Settings.read({}), {})


def test_a_link_of_the_user_is_an_experiment_and_one_that_comes_later_is_not(
    results: Results, tmp_path: Path
) -> None:
    """A link in the place may lead anywhere; once the experiment is open, no other is followed."""
    elsewhere = tmp_path / "elsewhere"
    (results.root / "open").rename(elsewhere)
    (results.root / "open").symlink_to(elsewhere)
    folder = results.open.folder(results.trial_id)
    folder.mkdir(exist_ok=True)
    (folder / "a").touch()
    followed = Place(str(results.root), Settings.read({}), {}).experiment("open")
    assert followed.artifact(results.trial_id, "a").size_bytes == 0
    secret = tmp_path / "secret"
    elsewhere.rename(secret)
    elsewhere.symlink_to(secret)
    with pytest.raises(NotRegular):
        followed.artifact(results.trial_id, "a")
    followed.close()


def test_the_experiments_that_were_opened_longest_ago_are_forgotten(tmp_path: Path) -> None:
    for at in range(6):
        RecordedExperiment(tmp_path / f"run{at}").close()
    place = Place(str(tmp_path), Settings.read({}), {})
    first = place.experiment("run0")
    for at in range(1, 6):
        place.experiment(f"run{at}")
    assert place.experiment("run0") is not first
    place.close()


def test_a_folder_that_a_run_has_yet_to_create_is_an_empty_place(tmp_path: Path) -> None:
    root = tmp_path / "results"
    with pytest.raises(ExperimentNotFound, match="there is no directory"):
        Place(str(root / "deeper"), Settings.read({}), {}, may_be_missing=True)
    several = Place(str(root), Settings.read({}), {}, may_be_missing=True)
    one = Place(f"{root}/", Settings.read({}), {}, may_be_missing=True)
    answer = several.listing(now=0.0)
    assert (answer["experiments"], answer["is_missing"], several.single) == ([], True, None)
    root.mkdir()
    assert several.listing(now=0.0) == {"place": str(root), "now": 0.0, "experiments": []}
    RecordedExperiment(root / "digits").close()
    (entry,) = several.listing(now=0.0)["experiments"]
    assert (entry["key"], several.single) == ("digits", None)
    assert several.experiment("digits").facts()["name"] == "digits"
    for place in (several, one):
        place.close()


def test_an_experiment_that_has_yet_to_begin_becomes_the_only_one(tmp_path: Path) -> None:
    place = Place(str(tmp_path / "digits"), Settings.read({}), {}, may_be_missing=True)
    assert place.sizes() == {}
    (tmp_path / "digits").mkdir()
    singles = [place.single]
    RecordedExperiment(tmp_path / "digits").close()
    (entry,) = place.listing(now=0.0)["experiments"]
    assert [*singles, place.single, entry["key"]] == [None, "digits", "digits"]
    place.close()
