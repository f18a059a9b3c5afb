"""The examples of Lightning, run as a user runs them, while ranks and the script are killed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.frameworks.example import Example, learned, marks
from tests.rig.bench import Bench

pytestmark = pytest.mark.process

PATH = Path(__file__).parents[3] / "examples" / "lightning" / "checkpoints.py"
LEARNED = ("epoch", "loss", "mean_accuracy")


@pytest.fixture(scope="module")
def undisturbed(
    benches: Callable[[Path], AbstractContextManager[Bench]],
    tmp_path_factory: pytest.TempPathFactory,
) -> list[tuple[float, ...]]:
    with benches(tmp_path_factory.mktemp("undisturbed")) as bench:
        Example(PATH).whole(bench)
        return learned(bench, *LEARNED)


def test_deaths_of_a_rank_and_of_the_script_repeat_no_epoch_and_change_no_number(
    bench: Bench, undisturbed: list[tuple[float, ...]]
) -> None:
    script = Example(PATH).disturbed(bench, at=(3, 5))
    assert marks(script, 5) == ["at 3 2", "at 4 2", "at 5 2", "at 5 3", "at 6 3"]
    assert learned(bench, *LEARNED) == undisturbed
    assert undisturbed[-1][1] < undisturbed[0][1]
    assert bench.problems() == []


def test_a_callback_of_ones_own_saves_every_third_epoch_and_resumes_from_there(
    bench: Bench, undisturbed: list[tuple[float, ...]]
) -> None:
    script = Example(PATH, "--report", "custom").disturbed(bench, at=(5, 5))
    assert marks(script, 5) == ["at 4 2", "at 5 2", "at 4 3", "at 5 3", "at 6 3"]
    assert learned(bench, *LEARNED) == undisturbed
    saved = [path.name for path in sorted(bench.root.glob("*/checkpoint_*"))]
    assert len(saved) == 2
    assert bench.problems() == []


def test_shards_of_all_ranks_are_resumed_after_deaths(
    bench: Bench, undisturbed: list[tuple[float, ...]]
) -> None:
    script = Example(PATH, "--strategy", "fsdp").disturbed(bench, at=(3, 5))
    assert marks(script, 5) == ["at 3 2", "at 4 2", "at 5 2", "at 5 3", "at 6 3"]
    assert learned(bench, *LEARNED) == [pytest.approx(row, rel=1e-4) for row in undisturbed]
    for checkpoint in bench.root.glob("*/checkpoint_*/checkpoint.ckpt"):
        assert {path.name for path in checkpoint.iterdir()} == {
            ".metadata",
            "meta.pt",
            "__0_0.distcp",
            "__1_0.distcp",
        }
    assert bench.problems() == []
