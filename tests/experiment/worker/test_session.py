"""The session of user code, with the test at the other end of its connection."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.experiment.worker import session as sessions
from holdfast.experiment.worker.host import prepare_directory
from holdfast.experiment.worker.job import Assignment, Job
from holdfast.experiment.worker.session import NotInTrial, Session, TrialStopped
from holdfast.syncer.checkpoint.checkpoint import Checkpoint

NOBODY = Assignment("t0", "t0", "t0", 1, {}, 0, 0.0, 0, None, [{"CPU": 1}], "PACK", 1)


class Interrupting:
    """A connection that gets the order to stop in the middle of a message."""

    def __init__(self) -> None:
        self.session: Session | None = None
        self.sent: list[list[Any]] = []

    def send(self, message: list[Any]) -> None:
        if self.session is not None:
            self.session.stop()
        self.sent.append(message)

    def receive(self, timeout_s: float | None = None) -> list[Any]:
        return ["reply", "continue"]

    def close(self) -> None: ...


@pytest.fixture
def connection() -> Interrupting:
    return Interrupting()


@pytest.fixture
def session(connection: Interrupting, tmp_path: Path) -> Session:
    place = str(tmp_path)
    job = Job(
        trainable=None,
        param_space={},
        experiment_name="run",
        experiment_dir=place,
        storage=place,
        working_dir=place,
    )
    return Session(job, NOBODY, connection)


def test_an_order_to_stop_cuts_no_message(connection: Interrupting, session: Session) -> None:
    connection.session = session
    with pytest.raises(TrialStopped):
        session.report({"loss": 0.5})
    assert [message[0] for message in connection.sent] == ["report"]
    # Output of user code while it unwinds is sent, and does not raise a second time.
    session.send_log("stdout", "cleaning up")
    assert [message[0] for message in connection.sent] == ["report", "log"]
    with pytest.raises(TrialStopped):
        session.report({"loss": 0.25})
    assert len(connection.sent) == 2


def test_an_order_to_stop_between_two_messages_unwinds_at_once(session: Session) -> None:
    with pytest.raises(TrialStopped):
        session.stop()
    assert session.stopping


def unrecorded(session: Session) -> Path:
    """A checkpoint that the previous attempt had staged when it died."""
    made = session.trial_dir / "checkpoint_000000"
    made.mkdir(parents=True)
    (made / "model").write_text("of attempt 1")
    (made / ".holdfast-staged").touch()
    return made


def report_a_checkpoint(session: Session, folder: Path) -> int:
    (folder / "new").mkdir()
    (folder / "new" / "model").write_text("of attempt 2")
    return session.stage(Checkpoint.from_directory(folder / "new"), 1).index


def test_what_an_attempt_that_died_left_unrecorded_goes(session: Session, tmp_path: Path) -> None:
    found = unrecorded(session)
    prepare_directory(session)
    assert os.listdir(session.trial_dir) == []
    assert session.checkpoint() is None
    assert report_a_checkpoint(session, tmp_path) == 0
    assert session.checkpoint() == Checkpoint(found)


def test_a_checkpoint_folder_of_the_scripts_own_stays_and_numbers_go_past_it(
    session: Session, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = session.trial_dir / "checkpoint_000000"
    own.mkdir(parents=True)
    (own / "model").write_text("mine")
    prepare_directory(session)
    assert report_a_checkpoint(session, tmp_path) == 100_000
    assert os.listdir(own) == ["model"]
    said = "holdfast: checkpoint_000000 in the trial's folder is the script's own"
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(("rank", "cleans"), [(1, False), (2, True)])
def test_on_each_node_the_first_rank_removes_what_was_left_there(
    session: Session, rank: int, cleans: bool
) -> None:
    nodes = [("a", "", ()), ("a", "", ()), ("b", "", ()), ("b", "", ())]
    session.assignment = NOBODY._replace(rank=rank, world_size=4, nodes=nodes)
    unrecorded(session)
    prepare_directory(session)
    assert os.listdir(session.trial_dir) == ([] if cleans else ["checkpoint_000000"])


def test_while_it_is_read_its_name_is_given_to_no_other(session: Session, tmp_path: Path) -> None:
    found = unrecorded(session)
    with Checkpoint(found).as_directory():
        prepare_directory(session)
        assert session.checkpoint() is None
        assert report_a_checkpoint(session, tmp_path) == 1
        assert (found / "model").read_text() == "of attempt 1"
    assert session.checkpoint() == Checkpoint(session.trial_dir / "checkpoint_000001")


# -- outside of a trial --------------------------------------------------------------------------


EVERY = pytest.mark.parametrize(
    "call",
    [lambda: tune.report({"a": 1}), tune.get_checkpoint, tune.get_context, tune.staging_directory],
)


@EVERY
def test_outside_of_a_trial_its_functions_say_so(call: Callable[[], Any]) -> None:
    with pytest.raises(NotInTrial, match=r"tune\.\w+\(\) works only inside a trial"):
        call()


@EVERY
def test_a_child_of_the_trial_is_refused_rather_than_ignored(
    session: Session, call: Callable[[], Any]
) -> None:
    sessions.enter(session)
    told, tells = os.pipe()
    try:
        if (child := os.fork()) == 0:
            try:
                call()
            except NotInTrial as error:
                os.write(tells, str(error).encode())
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        os.close(tells)
        said = os.read(told, 1 << 16).decode()
    finally:
        sessions.leave()
        os.close(told)
    assert re.match(r"tune\.\w+\(\) works only in the trial's own", said)
