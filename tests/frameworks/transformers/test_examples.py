"""The example of Transformers, run as a user runs it, while ranks and the script are killed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from holdfast.testing.bench import Bench
from holdfast.testing.script import UserScript

pytestmark = pytest.mark.process

EXAMPLE = Path(__file__).parents[3] / "examples" / "transformers" / "checkpoints.py"
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


def rows(root: Path) -> list[dict[str, Any]]:
    (path,) = root.glob("*/result.json")
    return [json.loads(line) for line in path.read_text().splitlines()]


def learned(root: Path) -> list[tuple[float, float, float]]:
    return [(row["epoch"], row["loss"], row["eval_loss"]) for row in rows(root)]


def disturbed(bench: Bench, *arguments: str, at: tuple[int, int]) -> UserScript:
    """The script is killed before iteration at[0] is reported, then rank 1 in at[1]."""
    first, second = at
    bench.environ["HOLDFAST_TEST_DIES"] = f"2 {second} 1"
    told = (str(EXAMPLE), "--storage", str(bench.storage), "--name", "run", *arguments)
    gate = bench.gate(f"report-{first}")
    script = bench.run(bench.script, *told)
    script.wait_for(f"at {first} 1", within_s=300)
    script.kill()
    assert script.left() == []
    gate.open()
    after = bench.run(bench.script, *told).succeeds(within_s=300)
    assert "Going on with run" in after.stdout
    assert after.left() == []
    return after


def marks(script: UserScript, count: int) -> list[str]:
    return [script.wait_for("at") for _ in range(count)]


def test_deaths_of_a_rank_and_of_the_script_repeat_no_epoch_and_change_no_number(
    bench: Bench, benches: Callable[[Path], AbstractContextManager[Bench]], tmp_path: Path
) -> None:
    script = disturbed(bench, "--epochs", "4", at=(2, 3))
    assert marks(script, 4) == ["at 2 2", "at 3 2", "at 3 3", "at 4 3"]
    for checkpoint in bench.root.glob("*/checkpoint_*/checkpoint"):
        assert {path.name for path in checkpoint.iterdir()} == SAVED
    assert bench.problems() == []
    with benches(tmp_path / "whole") as whole:
        told = (str(EXAMPLE), "--storage", str(whole.storage), "--name", "run", "--epochs", "4")
        whole.run(whole.script, *told).succeeds(within_s=300)
        wanted = learned(whole.root)
    assert learned(bench.root) == wanted
    assert [epoch for epoch, _, _ in wanted] == [1, 2, 3, 4]
    assert wanted[-1][2] < wanted[0][2]


def test_a_metric_of_an_evaluation_comes_with_the_checkpoint_of_its_step(bench: Bench) -> None:
    """Every 50 steps an evaluation, every 100 a checkpoint, in the middle of epochs of 30."""
    script = disturbed(bench, "--frequency", "steps", "--epochs", "10", at=(2, 2))
    assert marks(script, 3) == ["at 2 2", "at 2 3", "at 3 3"]
    told = rows(bench.root)
    assert [row["step"] for row in told] == [100, 200, 300]
    assert all(row["eval_loss"] > 0 for row in told)
    assert bench.problems() == []


def test_a_callback_of_ones_own_goes_on_from_what_it_reported(bench: Bench) -> None:
    script = disturbed(bench, "--report", "custom", "--epochs", "4", at=(2, 3))
    assert marks(script, 4) == ["at 2 2", "at 3 2", "at 3 3", "at 4 3"]
    assert [row["epoch"] for row in rows(bench.root)] == [1, 2, 3, 4]
    assert bench.problems() == []


def test_the_readme_names_what_there_is() -> None:
    text, code = (EXAMPLE.parent / "README.md").read_text(), EXAMPLE.read_text()
    told = re.findall(r"`checkpoints\.(\w+)`", text)
    assert len(told) >= 3
    for name in told:
        assert re.search(rf"^(def {name}\(|class {name}\(|{name}: )", code, re.MULTILINE), name
