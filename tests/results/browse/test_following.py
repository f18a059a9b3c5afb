"""`holdfast logs --follow`: its output, when it looks, and its messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from holdfast.experiment.records.view import Condition
from holdfast.results.logs import Follower, LogState
from holdfast.syncer.errors import StorageUnavailable

INTERVAL_S = 2.0


def state(*, ended: bool = False, begun: bool = True, live: bool = True) -> LogState:
    condition = Condition.LIVE if live else Condition.INTERRUPTED
    return LogState(has_ended=ended, has_begun=begun, condition=condition)


@dataclass
class World:
    """A log and its experiment; a step of `story` happens in each wait."""

    story: list[Callable[[World], None]]
    text: bytes | None = b""
    now: float = 0.0
    state: LogState = field(default_factory=state)
    look_takes_s: float = 0.0
    trouble: str = ""
    looks: int = 0
    said: list[str] = field(default_factory=list)

    def read_state(self) -> LogState:
        self.looks += 1
        return self.state

    def read(self, offset: int) -> tuple[int, bytes] | None:
        if self.trouble:
            raise StorageUnavailable("read", "s3://bucket/run/stdout", self.trouble)
        return None if self.text is None else (len(self.text), self.text[offset : offset + 7])

    def wait(self, seconds: float) -> None:
        assert seconds == INTERVAL_S
        self.now += seconds
        self.story.pop(0)(self)

    def followed(self) -> bytes:
        follower = Follower(
            self,
            INTERVAL_S,
            wait=self.wait,
            tell=self.said.append,
            clock=lambda: self.now,
            cpu=lambda: self.looks * self.look_takes_s,
        )
        return b"".join(follower.until_ended())


def writes(text: bytes) -> Callable[[World], None]:
    def step(world: World) -> None:
        world.text = (world.text or b"") + text

    return step


def becomes(state: LogState) -> Callable[[World], None]:
    def step(world: World) -> None:
        world.state = state

    return step


def ends(world: World) -> None:
    """With a last line that exists when the records show the end."""
    writes(b"the last\n")(world)
    world.state = state(ended=True)


def test_each_byte_is_given_once_and_the_last_ones_too() -> None:
    world = World([writes(b"two\nthree"), writes(b"\nfour\n"), ends], text=b"one\n")
    assert world.followed() == b"one\ntwo\nthree\nfour\nthe last\n"
    assert world.said == []


def test_one_that_has_not_begun_is_waited_for() -> None:
    world = World(
        [becomes(state(begun=False)), becomes(state()), writes(b"one\n"), ends],
        text=None,
        state=state(begun=False),
    )
    assert world.followed() == b"one\nthe last\n"
    assert world.said == ["the trial has not begun: waiting until it does"]


def test_a_run_that_is_killed_is_reported_once_for_each_time_and_waited_for() -> None:
    dead, alive = becomes(state(live=False)), becomes(state())
    world = World([dead, dead, alive, writes(b"again\n"), dead, ends])
    assert world.followed() == b"again\nthe last\n"
    assert len(world.said) == 2
    assert world.said[0].startswith("no process runs the experiment: waiting for a restore")


def test_a_storage_that_does_not_answer_is_reported_once_and_asked_again() -> None:
    def fails(world: World) -> None:
        world.trouble = "no answer"

    def answers(world: World) -> None:
        world.trouble = ""
        writes(b"after\n")(world)

    quiet = writes(b"")
    world = World([fails, writes(b"meanwhile\n"), quiet, answers, fails, ends, answers])
    assert world.followed() == b"meanwhile\nafter\nthe last\nafter\n"
    assert [line.count("no answer") for line in world.said] == [1, 1]


def test_records_that_are_long_to_read_are_read_rarely_and_the_file_as_often_as_ever() -> None:
    world = World([writes(b".") for _ in range(30)] + [ends] * 40, look_takes_s=1.0)
    assert world.followed().startswith(b"." * 30 + b"the last\n")
    assert world.looks <= 1 + world.now / 20


def test_a_file_that_is_shorter_than_before_is_given_from_its_beginning() -> None:
    def written_anew(world: World) -> None:
        world.text = b"new\n"

    world = World([written_anew, ends], text=b"old and long\n")
    assert world.followed() == b"old and long\nnew\nthe last\n"
    assert world.said == ["the file is now shorter than before: showing it from its beginning"]
