"""A sample of the campaign of faults; `scripts/faults` runs it long."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

import pytest

from holdfast.testing.campaign import Stage, in_memory
from holdfast.testing.mishaps import Crash, crashes, cuts, strikes
from holdfast.testing.powercut import Recording
from holdfast.testing.s3_server import S3Server

pytestmark = pytest.mark.process

USER_SCRIPT = Path(__file__).parents[1] / "restore" / "user_script.py"
CRASHES, CUTS, STRIKES = 20, 10, 8


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with in_memory(USER_SCRIPT) as made:
        yield made


@pytest.fixture(scope="module")
def sample(stage: Stage) -> Iterator[Crash]:
    """Crashes of every role, the same in each test session."""
    measured = {mirrored: stage.measure(mirrored=mirrored) for mirrored in (False, True)}
    assert all(most[role] > 10 for most in measured.values() for role in ("script", "keeper"))
    return crashes(measured, random.Random(1))


@pytest.mark.parametrize("number", range(CRASHES))
def test_a_run_that_is_killed_at_any_operation_goes_on_and_nothing_is_lost(
    stage: Stage, sample: Iterator[Crash], number: int
) -> None:
    story = stage.crash(next(sample))
    assert list(story.problems) == [], f"{story.fault} on {story.fell_on}:\n{story.said}"


@pytest.fixture(scope="module")
def recording(stage: Stage) -> Iterator[Recording]:
    with ExitStack() as stack:
        yield stack.enter_context(stage.recorded())


@pytest.mark.parametrize("number", range(CUTS))
def test_a_run_whose_machine_lost_its_power_goes_on_from_what_was_on_the_disk(
    stage: Stage, recording: Recording, number: int
) -> None:
    fsyncs = len(recording.moments)
    assert fsyncs > 20
    cut = next(islice(cuts(fsyncs, random.Random(2)), number, None))
    story = stage.lose_power(recording, cut)
    assert list(story.problems) == [], f"{cut}:\n{story.said}"


@pytest.fixture(scope="module")
def requests(stage: Stage, moto: S3Server) -> int:
    return stage.requests(moto)


@pytest.mark.server
@pytest.mark.parametrize("number", range(STRIKES))
def test_a_run_whose_bucket_ails_loses_nothing_once_it_is_well_again(
    stage: Stage, moto: S3Server, requests: int, number: int
) -> None:
    strike = next(islice(strikes(requests, random.Random(3)), number, None))
    story = stage.strike(moto, strike)
    assert list(story.problems) == [], f"{strike} on {story.fell_on}:\n{story.said}"
