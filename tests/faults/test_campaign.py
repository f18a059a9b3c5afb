"""A sample of the campaign of faults, and a larger one for the night: CI runs others each day
(`scripts/nightly --sample`)."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import islice
from pathlib import Path

import pytest

from tests.rig.faults.aftermath import Story, rows
from tests.rig.faults.bucket_stage import BucketStage
from tests.rig.faults.campaign import bucket_stage
from tests.rig.faults.deaths import ROLES
from tests.rig.faults.ills import Ill
from tests.rig.faults.mishaps import (
    Crash,
    Expiry,
    Freeze,
    Kill,
    Refusal,
    Remote,
    Removal,
    Stop,
    Storm,
    Strike,
    crashes,
    cuts,
)
from tests.rig.faults.powercut import Recording
from tests.rig.faults.stage import EPOCHS, Stage, in_memory
from tests.rig.mounts import may_mount
from tests.rig.nightly import rest_nightly, selected

pytestmark = pytest.mark.process

USER_SCRIPT = Path(__file__).parents[1] / "restore" / "user_script.py"
CRASHES, CUTS = 20, 12
AT_ONCE = 2

IN_A_BUCKET: tuple[Remote, ...] = (
    Strike(ill=Ill.CORRUPTED, at=6),
    Kill(at=60, victims=("script", "uploader"), is_performed=False),
    Storm(seed=4, probability=0.1),
    Expiry(at=50),
    Freeze(at=55, elsewhere=True),
)


def shown(story: Story) -> str:
    return f"{story.fault} on {story.fell_on}:\n{story.said}"


def stopped(stories: Iterable[Future[Story]]) -> None:
    """Start no more, and wait for those that run."""
    wait([story for story in stories if not story.cancel()])


@pytest.fixture(scope="module")
def threads() -> Iterator[ThreadPoolExecutor]:
    """Most of a scenario is the start of Python on one CPU: others run meanwhile."""
    pool = ThreadPoolExecutor(AT_ONCE)
    yield pool
    pool.shutdown()


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with in_memory(USER_SCRIPT) as made:
        yield made


@pytest.fixture(scope="module")
def crashed(
    request: pytest.FixtureRequest, stage: Stage, threads: ThreadPoolExecutor
) -> Iterator[Mapping[int, Future[Story]]]:
    """Crashes of every role, the same in each test session."""
    measured = {mirrored: stage.measure(mirrored=mirrored) for mirrored in (False, True)}
    busy = set(ROLES) - {"warm"}
    assert all(most[role] > 10 for most in measured.values() for role in busy)
    several = list(islice(crashes(measured, random.Random(1)), CRASHES))
    chosen = selected(request, "crash")
    stories = {number: threads.submit(stage.crash, several[number]) for number in chosen}
    yield stories
    stopped(stories.values())


@pytest.mark.parametrize("crash", rest_nightly(1, range(CRASHES)))
def test_a_run_that_is_killed_at_any_operation_continues_and_nothing_is_lost(
    crashed: Mapping[int, Future[Story]], crash: int
) -> None:
    story = crashed[crash].result()
    assert list(story.problems) == [], shown(story)


def test_links_and_mounts_are_among_what_a_campaign_tries(stage: Stage) -> None:
    """A worker dies while it makes the link through which it will report a checkpoint."""
    story = stage.crash(Crash(role="worker", at=20))
    assert story.fell_on, shown(story)
    assert list(story.problems) == [], shown(story)
    assert story.checked["what a link leads to stays as it is"]
    mounted = story.checked["what is mounted inside an experiment stays, and so does the rest"]
    assert bool(mounted) is may_mount()


OF_RANKS = (
    Crash(role="worker", at=12),
    Crash(role="script", at=25, mirrored=True),
)


@pytest.mark.nightly
@pytest.mark.parametrize("of_ranks", OF_RANKS, ids=str)
def test_a_run_of_trials_with_two_workers_each_is_no_different(of_ranks: Crash) -> None:
    with in_memory(USER_SCRIPT, ranks=2) as stage:
        story = stage.crash(of_ranks)
    assert story.fell_on, "it was to fall on something"
    assert list(story.problems) == [], shown(story)


STOPS = (
    Stop(role="worker", at=9, victim="warm"),
    Stop(role="worker", at=2, victim="worker"),  # it has not sent anything
    Stop(role="script", at=20, victim="worker", mirrored=True),
    Stop(role="uploader", at=8, victim="uploader"),
    Stop(role="script", at=25, victim="projector"),
    Stop(role="worker", at=9, victim="script"),
)


REMOVALS = (
    Removal(role="script", at=20, what="the experiment's folder"),
    Removal(role="worker", at=12, what="the journal's newest segment", mirrored=True),
    # Its last checkpoint is made in the place of the folder, and is only in storage.
    Removal(role="worker", at=15, what="the experiment's folder", mirrored=True),
)


@pytest.mark.nightly
@pytest.mark.parametrize("removal", REMOVALS, ids=str)
def test_a_run_from_under_which_its_files_are_removed_says_so_or_loses_nothing(
    stage: Stage, removal: Removal
) -> None:
    story = stage.remove(removal)
    assert story.fell_on, shown(story)
    assert list(story.problems) == [], shown(story)


@pytest.fixture(scope="module")
def stopped_once(
    request: pytest.FixtureRequest, stage: Stage, threads: ThreadPoolExecutor
) -> Iterator[Mapping[Stop, Future[Story]]]:
    stories = {stop: threads.submit(stage.stop, stop) for stop in selected(request, "stop")}
    yield stories
    stopped(stories.values())


@pytest.mark.nightly
@pytest.mark.parametrize("stop", STOPS, ids=str)
def test_a_run_of_which_a_process_is_stopped_for_ever_comes_to_a_good_end(
    stopped_once: Mapping[Stop, Future[Story]], stop: Stop
) -> None:
    story = stopped_once[stop].result()
    assert story.fell_on, shown(story)
    assert list(story.problems) == [], shown(story)


@pytest.fixture(scope="module")
def recording(stage: Stage) -> Iterator[Recording]:
    with stage.recorded() as made:
        yield made


@pytest.fixture(scope="module")
def darkened(
    request: pytest.FixtureRequest,
    stage: Stage,
    recording: Recording,
    threads: ThreadPoolExecutor,
) -> Iterator[Mapping[int, Future[Story]]]:
    fsyncs = len(recording.moments)
    assert fsyncs > 20
    several = list(islice(cuts(fsyncs, random.Random(2)), CUTS))
    stories = {
        number: threads.submit(stage.lose_power, recording, several[number])
        for number in selected(request, "cut")
    }
    yield stories
    stopped(stories.values())


def test_a_cut_at_the_end_leaves_everything_even_at_its_worst(
    stage: Stage, recording: Recording
) -> None:
    """Otherwise a cut would be harmless because there was nothing to lose."""
    with stage.bench() as bench:
        recording.after(len(recording.moments), bench.storage, None)
        assert len(rows(bench.root)) == 2 * EPOCHS


@pytest.mark.parametrize("cut", rest_nightly(1, range(CUTS)))
def test_a_run_whose_machine_lost_its_power_resumes_from_what_was_on_the_disk(
    darkened: Mapping[int, Future[Story]], cut: int
) -> None:
    story = darkened[cut].result()
    assert list(story.problems) == [], shown(story)


# A sample of about 60: the journal's, early and late, a checkpoint's, and twice in a row.
REFUSALS = (Refusal(at=9), Refusal(at=24), Refusal(at=15, times=2, luck=3))


@pytest.fixture(scope="module")
def refused(
    request: pytest.FixtureRequest, stage: Stage, threads: ThreadPoolExecutor
) -> Iterator[Mapping[Refusal, Future[Story]]]:
    stories = {one: threads.submit(stage.refuse, one) for one in selected(request, "refusal")}
    yield stories
    stopped(stories.values())


@pytest.mark.parametrize("refusal", rest_nightly(1, REFUSALS), ids=str)
def test_a_disk_that_refuses_an_fsync_takes_nothing_of_what_was_acknowledged(
    refused: Mapping[Refusal, Future[Story]], refusal: Refusal
) -> None:
    story = refused[refusal].result()
    assert story.fell_on
    assert list(story.problems) == [], shown(story)


@pytest.fixture(scope="module")
def buckets(stage: Stage) -> Iterator[BucketStage]:
    with bucket_stage(stage) as made:
        yield made


@pytest.fixture(scope="module")
def befallen(
    request: pytest.FixtureRequest, buckets: BucketStage, threads: ThreadPoolExecutor
) -> Iterator[Mapping[Remote, Future[Story]]]:
    stories = {one: threads.submit(buckets.play, one) for one in selected(request, "mishap")}
    yield stories
    stopped(stories.values())


@pytest.mark.server
@pytest.mark.nightly
@pytest.mark.parametrize("mishap", IN_A_BUCKET, ids=str)
def test_a_run_whose_bucket_ails_loses_nothing_once_it_is_well_again(
    befallen: Mapping[Remote, Future[Story]], mishap: Remote
) -> None:
    story = befallen[mishap].result()
    assert story.fell_on
    assert list(story.problems) == [], shown(story)
