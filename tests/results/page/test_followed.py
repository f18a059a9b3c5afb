"""A page follows an experiment: while it runs, after it was killed, when another one follows."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgpack
import pytest

from holdfast.experiment.folder.settings import Settings
from holdfast.results import following
from holdfast.results.reading import ExperimentNotFound, find
from holdfast.scheduler.events import (
    EndOrdered,
    Exited,
    NoteWritten,
    PauseRequested,
    Resumed,
    SearchEnded,
    Suggested,
)
from holdfast.syncer.journal.segment import framed
from holdfast.testing.rehearsal import trial_spec
from holdfast.trial.config import FailureConfig
from holdfast.trial.resources import ONE_CPU, PlacementGroupFactory
from tests.results.reported import Watched
from tests.rig.runs.recorded import RecordedExperiment


class Page(Watched):
    """A recorded run, and what follows it."""

    def __init__(self, root: Path, **spec: Any) -> None:
        found = partial(find, str(root), Settings.read({}), {}, asks=False)
        super().__init__(lambda kept: found(kept=kept), lambda: self.run.now)
        self.root = root
        self.run = RecordedExperiment(root, **{"metric": "loss", "mode": "min", **spec})
        self.lock: int | None = None
        self.hold()

    def hold(self) -> None:
        """A process runs it."""
        self.lock = os.open(self.root / ".lock", os.O_RDWR | os.O_CREAT)
        fcntl.flock(self.lock, fcntl.LOCK_EX)

    def release(self) -> None:
        """The process is gone."""
        if self.lock is not None:
            os.close(self.lock)
            self.lock = None

    def column(self, name: str) -> list[Any]:
        answer = self.followed.trials()
        found: list[Any] = {**answer["columns"], **answer["params"], **answer["metrics"]}[name]
        return found

    def rows(self, trial_id: str, after: int = 0) -> dict[str, Any]:
        answer = self.followed.rows([(trial_id, after)], ["loss"], 2_000)
        assert not answer["missing"]
        found: dict[str, Any] = answer["trials"][trial_id]
        return found

    def close(self) -> None:
        self.release()
        super().close()
        self.run.close()


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    made = Page(tmp_path / "run")
    yield made
    made.close()


def test_only_trials_that_have_changed_are_sent_again(page: Page) -> None:
    first, second = page.run.begin({"lr": 0.1}), page.run.begin({"lr": 0.2})
    version = page.look()
    page.run.report(first, {"loss": 0.5})
    page.run.report(first, {"loss": 0.25})
    news = page.news(version)
    assert list(news) == [first]
    assert (news[first]["iteration"], news[first]["metrics"]) == (2, {"loss": 0.25})
    assert page.news(page.look()) == {}
    assert set(page.news(version)) == {first}  # another page that has seen less
    third = page.run.begin({"lr": 0.3})
    assert set(page.news(version)) == {first, third}
    assert page.column("lr") == [0.1, 0.2, 0.3]
    assert page.column("iteration") == [2, 0, 0]
    assert page.column("status") == ["RUNNING"] * 3
    assert page.followed.trials()["ids"] == [first, second, third]


def test_a_trial_that_starts_because_another_has_ended_is_sent_again(tmp_path: Path) -> None:
    page = Page(tmp_path / "run", max_concurrent=1)
    first, second = page.run.begin(), page.run.suggest()
    version = page.look()
    page.run.finish(first)
    assert page.news(version)[second]["status"] == "STARTING"
    page.close()


def test_a_table_of_the_first_trials_and_all_changes_is_the_table_of_now(page: Page) -> None:
    trials = [page.run.begin({"lr": at}) for at in range(3)]
    before = page.followed.trials()
    known = {one: at for at, one in enumerate(before["ids"])}
    version = before["version"]
    for step in range(20):
        trial_id = trials[step % 3]
        if page.run.trial(trial_id).status.is_final:
            continue
        if step == 15:
            page.run.finish(trial_id)
        else:
            page.run.report(trial_id, {"loss": step}, checkpoint="staged" if step % 5 else "")
        for one in page.news(version).values():
            at = known[one["trial_id"]]
            for name in before["columns"]:
                before["columns"][name][at] = one[name]
        version = page.followed.version
    after = page.followed.trials()
    assert before["columns"] == after["columns"]


def test_rows_are_there_before_any_file(page: Page) -> None:
    trial_id = page.run.begin()
    page.look()
    for at in range(5):
        page.run.report(trial_id, {"loss": 1.0 / (at + 1)})
    page.look()
    rows = page.rows(trial_id)
    assert rows["iteration"] == [1, 2, 3, 4, 5]
    assert rows["metrics"]["loss"] == [1.0, 0.5, 1 / 3, 0.25, 0.2]
    assert not (page.run.folder(trial_id) / "progress.csv").exists()
    assert page.rows(trial_id, 3)["iteration"] == [4, 5]
    assert page.rows(trial_id, 3)["from"] == 4
    page.run.write_files()
    assert page.rows(trial_id)["iteration"] == [1, 2, 3, 4, 5]


def test_a_gap_before_what_was_seen_is_filled_as_soon_as_the_files_have_it(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.results.following._NEWEST", 2)
    trial_id = page.run.begin()
    for at in range(1, 6):
        page.run.report(trial_id, {"loss": float(at)})
    assert page.rows(trial_id)["iteration"] == [4, 5]
    page.run.write_files()
    rows = page.rows(trial_id, 5)
    assert (rows["from"], rows["iteration"]) == (1, [1, 2, 3, 4, 5])
    page.at += 100.0
    assert page.rows(trial_id, 5)["from"] == 6


def test_rows_from_files_and_rows_from_the_journal_make_one_curve(page: Page) -> None:
    trial_id = page.run.begin()
    for at in range(3):
        page.run.report(trial_id, {"loss": float(at)})
    page.run.write_files()
    page.look()
    for at in range(3, 6):
        page.run.report(trial_id, {"loss": float(at)})
    page.look()
    assert page.rows(trial_id)["metrics"]["loss"] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


def test_a_rollback_replaces_rows_that_the_files_still_have(tmp_path: Path) -> None:
    page = Page(tmp_path / "run", failure=FailureConfig(max_failures=1))
    trial_id = page.run.begin()
    for at in range(1, 6):
        page.run.report(trial_id, {"loss": float(at)}, checkpoint="committed" if at == 2 else "")
    page.run.write_files()
    version = page.look()
    page.run.add(Exited(trial_id=trial_id, attempt=1, cause="was killed"))
    page.run.start(trial_id)
    assert page.news(version)[trial_id]["attempt"] == 2
    assert page.rows(trial_id)["iteration"] == [1, 2]
    assert page.rows(trial_id, 5) == {**page.rows(trial_id, 2), "from": 3}
    page.run.report(trial_id, {"loss": 30.0})
    page.look()
    assert page.rows(trial_id)["metrics"]["loss"] == [1.0, 2.0, 30.0]
    assert page.rows(trial_id)["starts"] == [{"iteration": 2, "at": page.run.now - 1}]
    page.close()


def test_a_killed_run_is_shown_and_followed_through_its_restore(page: Page) -> None:
    trial_id = page.run.begin()
    for at in range(1, 4):
        page.run.report(trial_id, {"loss": 1.0}, checkpoint="committed" if at == 2 else "")
    version = page.look()
    assert page.followed.facts()["state"] == "live"
    page.release()
    news = page.news(version)
    assert news[trial_id]["stop_reason"] == "interrupted"
    facts = page.followed.facts()
    assert facts["state"] == "interrupted"
    assert facts["progress"]["running"] == 0
    assert [one["kind"] for one in facts["timeline"]] == ["began", "interrupted"]
    page.hold()
    page.run.now += 60
    page.run.add(Resumed(epoch=2, capacity={"CPU": 1000}))
    page.run.start(trial_id)
    page.run.report(trial_id, {"loss": 0.5})
    news = page.news(version)
    assert (news[trial_id]["attempt"], news[trial_id]["stop_reason"]) == (2, None)
    facts = page.followed.facts()
    assert (facts["state"], facts["restores"]) == ("live", 1)
    restored = facts["timeline"][-1]
    assert restored["kind"] == "restored"
    assert "1 iteration (0.5s of training) ran again" in restored["text"]
    trial = page.followed.trial(trial_id)
    assert [one["end"] for one in trial["attempts"]] == ["interrupted", "running"]


def test_another_run_in_the_folder_resets_the_page(page: Page) -> None:
    page.run.begin()
    version = page.look()
    page.run.close()
    page.run = RecordedExperiment(page.root, run="99999", metric="loss", mode="min")
    trial_id = page.run.begin()
    assert page.look() > version
    assert page.followed.changed_since(version) is None
    assert page.followed.trials()["ids"] == [trial_id]
    assert page.followed.facts()["run"] == 2
    assert page.news(page.followed.version) == {}


def test_a_deleted_experiment_is_reported_and_a_new_one_in_its_place_is_shown(
    page: Page, tmp_path: Path
) -> None:
    trial_id = page.run.begin()
    version = page.look()
    page.release()
    shutil.rmtree(page.root)
    for _ in range(2):
        with pytest.raises(ExperimentNotFound):
            page.look()
    assert page.followed.trials()["ids"] == [trial_id]  # what was known stays
    page.run = RecordedExperiment(page.root, run="77777")
    new_id = page.run.begin()
    page.look()
    assert page.followed.changed_since(version) is None
    assert page.followed.trials()["ids"] == [new_id]


def test_a_record_that_is_being_written_is_read_when_it_is_whole(page: Page) -> None:
    trial_id = page.run.begin()
    version = page.look()
    page.run.report(trial_id, {"loss": 1.0})
    (segment,) = (page.root / "journal").glob("*.log")
    whole = segment.read_bytes()
    os.truncate(segment, len(whole) - 7)
    assert page.news(version) == {}
    segment.write_bytes(whole)
    assert page.news(version)[trial_id]["iteration"] == 1


def test_damage_in_the_journal_of_a_dead_run_is_a_notice(page: Page) -> None:
    trial_id = page.run.begin()
    page.look()
    page.run.report(trial_id, {"loss": 1.0})
    (segment,) = (page.root / "journal").glob("*.log")
    data = segment.read_bytes()
    segment.write_bytes(data[:-20] + b"\0" * 20)
    page.release()
    page.look()
    facts = page.followed.facts()
    assert facts["state"] == "interrupted"
    assert "is left out here" in " ".join(facts["notices"])


def test_a_record_of_a_newer_version_is_a_notice_until_it_is_gone(page: Page) -> None:
    trial_id = page.run.begin()
    version = page.look()
    (segment,) = (page.root / "journal").glob("*.log")
    size = segment.stat().st_size
    with open(segment, "ab") as file:
        file.write(framed(msgpack.packb(["Teleported", page.run.now, {"trial_id": trial_id}])))
    for _ in range(2):
        assert page.news(version) == {}
        (notice,) = page.followed.facts()["notices"]
        assert "not an event of this version of holdfast: 'Teleported'" in notice
    os.truncate(segment, size - 1)  # as a repair does
    page.look()
    assert page.followed.facts()["counts"] == {"STARTING": 1}


def test_storage_that_does_not_answer_loses_no_record(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial_id = page.run.begin()
    version = page.look()
    page.run.report(trial_id, {"loss": 1.0})
    with monkeypatch.context() as patch:
        patch.setattr(following, "read", broken)
        with pytest.raises(OSError, match="disk"):
            page.look()
    assert page.news(version)[trial_id]["iteration"] == 1


def broken(*args: object) -> Iterator[object]:
    raise OSError("the disk does not answer")


def test_threads_ask_while_trials_are_added(page: Page) -> None:
    page.run.begin({"lr": 0.1})
    page.look()
    stop, faults = threading.Event(), list[BaseException]()

    def ask() -> None:
        while not stop.is_set():
            try:
                ids = page.followed.trials()["ids"]
                page.followed.trial(ids[-1])
                page.followed.importance("loss")
                page.followed.scheduler()
                page.followed.rows([(one, 0) for one in ids], ["loss"], 100)
            except BaseException as error:
                faults.append(error)
                raise

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for at in range(25):
            trial_id = page.run.begin({"lr": at})
            page.run.report(trial_id, {"loss": 1.0 / (at + 1)})
            page.look()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not faults


def test_a_cut_journal_is_read_again(page: Page) -> None:
    trial_id = page.run.begin()
    (segment,) = (page.root / "journal").glob("*.log")
    size = segment.stat().st_size
    page.run.report(trial_id, {"loss": 1.0})
    version = page.look()
    os.truncate(segment, size)
    assert page.news(version)[trial_id]["iteration"] == 0


def test_an_older_page_reads_all_again_after_the_server_has_restarted(page: Page) -> None:
    page.run.begin()
    version = page.look()
    page.run.now += 1  # the versions of a server begin with the time
    page.followed.close()
    page.made = None
    assert page.look() > version
    assert page.followed.changed_since(version) is None
    assert page.followed.changed_since(page.followed.version + 1) is None


def test_what_a_person_does_is_shown(page: Page) -> None:
    trial_id = page.run.begin()
    version = page.look()
    page.run.add(NoteWritten(trial_id=trial_id, text="odd", by="ann (page)"))
    page.run.add(PauseRequested(trial_id=trial_id, by="ann (page)"))
    news = page.news(version)[trial_id]
    assert (news["note"], news["is_held"], news["pausing"]) == ("odd", True, True)
    page.run.report(trial_id, {"loss": 1.0}, checkpoint="committed")
    page.run.finish(trial_id)
    page.run.add(SearchEnded())
    assert page.news(version)[trial_id]["status"] == "PAUSED"
    facts = page.followed.facts()
    assert facts["counts"] == {"PAUSED": 1}
    assert facts["progress"]["waiting_text"] == (
        "1 trial is paused, and nothing else is left: resume or stop them."
    )


def test_a_checkpoint_has_the_value_of_its_row_and_the_best_and_newest_are_marked(
    page: Page,
) -> None:
    trial_id, other = page.run.begin(), page.run.begin()
    for loss in (0.9, 0.3, 0.5):
        page.run.report(trial_id, {"loss": 2.0})
        page.run.report(trial_id, {"loss": loss}, checkpoint="committed")
    page.run.report(other, {"loss": 0.1}, checkpoint="committed")
    page.run.write_files()
    page.look()

    def marks(trial_id: str) -> list[tuple[Any, ...]]:
        found = page.followed.trial(trial_id)["checkpoints"]
        names = ("iteration", "score", "is_best", "is_newest")
        return [tuple(one[name] for name in names) for one in found]

    assert page.followed.trial(trial_id)["checkpoint_metric"] == "loss"
    shown = [(6, 0.5, False, True), (4, 0.3, True, False), (2, 0.9, False, False)]
    assert marks(trial_id) == shown
    assert marks(other) == [(1, 0.1, False, True)]
    # The files are not read again for what is known; a new row comes from the journal.
    shutil.rmtree(page.run.folder(trial_id))
    page.run.report(trial_id, {"loss": 0.3}, checkpoint="committed")
    page.look()
    assert marks(trial_id) == [
        (7, 0.3, True, True),
        (6, 0.5, False, False),
        (4, 0.3, False, False),
        (2, 0.9, False, False),
    ]


def test_a_page_says_how_many_workers_wait_for_a_slow_search(tmp_path: Path) -> None:
    page = Page(
        tmp_path / "run",
        resources=ONE_CPU,
        max_concurrent=8,
        num_samples=20,
        options={"search": "Slow"},
    )
    try:
        page.run.add(Suggested(spec=trial_spec(0), took_s=0.5))
        page.look()
        assert page.followed.facts()["progress"]["waiting_text"] == (
            "7 workers wait for the search: Slow takes 0.5 s per suggestion."
        )
    finally:
        page.close()


def test_numbers_that_json_lacks_are_texts(page: Page) -> None:
    trial_id = page.run.begin({"lr": float("nan"), "big": 1 << 80})
    page.look()
    for loss in (float("nan"), float("inf"), 1.0, float("-inf")):
        page.run.report(trial_id, {"loss": loss, "text": "x", "nested": {"a": 1}})
    page.look()
    everything = [
        page.followed.facts(),
        page.followed.trials(),
        page.followed.trial(trial_id),
        page.rows(trial_id),
    ]
    json.dumps(everything, allow_nan=False)
    assert page.rows(trial_id)["metrics"]["loss"] == ["NaN", "Infinity", 1.0, "-Infinity"]
    assert page.column("loss") == ["-Infinity"]
    assert page.column("nested/a") == [1]
    assert page.followed.facts()["metrics"] == ["loss", "nested/a"]


def test_the_reports_of_the_last_seconds_give_a_rate(page: Page) -> None:
    trial_id = page.run.begin()
    page.look()
    for _ in range(50):
        page.run.report(trial_id, {"loss": 1.0})
    page.look()
    assert page.followed.facts()["progress"]["reports_per_s"] == pytest.approx(5.0)


def test_an_experiment_of_one_that_has_ended_is_complete(page: Page) -> None:
    trial_id = page.run.begin({"lr": 0.1})
    page.run.report(trial_id, {"loss": 0.5})
    page.run.finish(trial_id)
    page.run.add(EndOrdered(reason="budget", message="the time budget of 9 s is used up"))
    page.release()
    page.look()
    facts = page.followed.facts()
    assert facts["state"] == "finished"
    assert facts["counts"] == {"TERMINATED": 1}
    assert facts["stop_reasons"] == {"finished": 1}
    assert facts["ending"] == "the time budget of 9 s is used up"
    assert not facts["steering"]["possible"]
    assert "no process runs" in facts["steering"]["why_not"]
    trial = page.followed.trial(trial_id)
    assert (trial["best_id"], trial["differs"]) == (trial_id, [])


def test_nothing_is_written_and_nothing_is_locked(page: Page) -> None:
    trial_id = page.run.begin()
    page.run.report(trial_id, {"loss": 0.5}, checkpoint="committed")
    page.run.write_files()
    before = {path: path.stat().st_mtime_ns for path in page.root.rglob("*")}
    page.look()
    page.followed.trial(trial_id)
    page.followed.rows([(trial_id, 0)], ["loss"], 100)
    b"".join(page.followed.checkpoint_tar(trial_id, "checkpoint_000000").pieces)
    assert {path: path.stat().st_mtime_ns for path in page.root.rglob("*")} == before


def test_what_an_experiment_says_of_itself_does_not_reach_the_terminal_of_the_server(
    page: Page, caplog: pytest.LogCaptureFixture
) -> None:
    metric = "loss\x1b]0;title\x07"
    page.run.report(page.run.begin({"lr": 0.1}), {metric: 1.0})
    page.run.report(page.run.begin({"lr": 0.2}), {metric: 2.0})
    page.look()
    assert metric in page.followed.importance(metric)["note"]
    assert caplog.text == ""


def test_a_limit_that_the_machine_cannot_fill_is_explained_while_trials_wait(
    tmp_path: Path,
) -> None:
    page = Page(
        tmp_path / "run",
        resources=PlacementGroupFactory([{"CPU": 400}]),
        max_concurrent=4,
        num_samples=8,
    )
    try:
        trials = [page.run.suggest() for _ in range(3)]
        for trial_id in trials[:2]:
            page.run.start(trial_id)
        page.look()
        text = (
            "4 trials may run at once, but there is room for 2: each asks for 400 CPUs, and this "
            "machine has 1000 CPUs. Ask for less in tune.with_resources(), or declare more in "
            "holdfast.init()."
        )
        assert page.followed.facts()["progress"]["waiting_text"] == text
        page.run.add(SearchEnded())
        page.run.finish(trials[0])
        page.look()
        assert page.followed.facts()["progress"]["waiting_text"] == ""  # nothing waits any more
        page.run.add(EndOrdered(reason="interrupt", message="stopped by ann (page)"))
        page.look()
        text = "The run is ending: stopped by ann (page)."
        assert page.followed.facts()["progress"]["waiting_text"] == text
    finally:
        page.close()
