"""The example of Transformers, run as a user runs it, while ranks and the script are killed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.frameworks.example import Example, learned, marks, rows
from tests.rig.bench import Bench

pytestmark = pytest.mark.process

PATH = Path(__file__).parents[3] / "examples" / "transformers" / "checkpoints.py"
LEARNED = ("epoch", "loss", "eval_loss")
SAVED = {
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "optimizer.pt",
    "rng_state_0.pth",
    "rng_state_1.pth",
    "scheduler.pt",
    "trainer_state.json",
    "training_args.bin",
}


def test_deaths_of_a_rank_and_of_the_script_repeat_no_epoch_and_change_no_number(
    bench: Bench, benches: Callable[[Path], AbstractContextManager[Bench]], tmp_path: Path
) -> None:
    script = Example(PATH, "--epochs", "4").disturbed(bench, at=(2, 3))
    assert marks(script, 4) == ["at 2 2", "at 3 2", "at 3 3", "at 4 3"]
    for checkpoint in bench.root.glob("*/checkpoint_*/checkpoint"):
        assert {path.name for path in checkpoint.iterdir()} == SAVED
    assert bench.problems() == []
    with benches(tmp_path / "whole") as whole:
        Example(PATH, "--epochs", "4").whole(whole)
        wanted = learned(whole, *LEARNED)
    assert learned(bench, *LEARNED) == wanted
    assert [epoch for epoch, _, _ in wanted] == [1, 2, 3, 4]
    assert wanted[-1][2] < wanted[0][2]


def test_a_metric_of_an_evaluation_comes_with_the_checkpoint_of_its_step(bench: Bench) -> None:
    """Every 50 steps an evaluation, every 100 a checkpoint, in the middle of epochs of 30."""
    script = Example(PATH, "--frequency", "steps", "--epochs", "10").disturbed(bench, at=(2, 2))
    assert marks(script, 3) == ["at 2 2", "at 2 3", "at 3 3"]
    told = rows(bench)
    assert [row["step"] for row in told] == [100, 200, 300]
    assert all(row["eval_loss"] > 0 for row in told)
    assert bench.problems() == []


def test_a_callback_of_ones_own_resumes_from_what_it_reported(bench: Bench) -> None:
    script = Example(PATH, "--report", "custom", "--epochs", "4").disturbed(bench, at=(2, 3))
    assert marks(script, 4) == ["at 2 2", "at 3 2", "at 3 3", "at 4 3"]
    assert [row["epoch"] for row in rows(bench)] == [1, 2, 3, 4]
    assert bench.problems() == []
