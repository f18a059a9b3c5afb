"""The examples of Lightning, run as a user runs them, while ranks and the script are killed."""

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

EXAMPLE = Path(__file__).parents[3] / "examples" / "lightning" / "checkpoints.py"


def rows(root: Path) -> list[dict[str, Any]]:
    (path,) = root.glob("*/result.json")
    return [json.loads(line) for line in path.read_text().splitlines()]


def learned(root: Path) -> list[tuple[int, float, float]]:
    return [(row["epoch"], row["loss"], row["mean_accuracy"]) for row in rows(root)]


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


@pytest.fixture(scope="module")
def undisturbed(
    benches: Callable[[Path], AbstractContextManager[Bench]],
    tmp_path_factory: pytest.TempPathFactory,
) -> list[tuple[int, float, float]]:
    with benches(tmp_path_factory.mktemp("undisturbed")) as bench:
        told = (str(EXAMPLE), "--storage", str(bench.storage), "--name", "run")
        bench.run(bench.script, *told).succeeds(within_s=300)
        return learned(bench.root)


def test_deaths_of_a_rank_and_of_the_script_repeat_no_epoch_and_change_no_number(
    bench: Bench, undisturbed: list[tuple[int, float, float]]
) -> None:
    script = disturbed(bench, at=(3, 5))
    assert marks(script, 5) == ["at 3 2", "at 4 2", "at 5 2", "at 5 3", "at 6 3"]
    assert learned(bench.root) == undisturbed
    assert undisturbed[-1][1] < undisturbed[0][1]
    assert bench.problems() == []


def test_a_callback_of_ones_own_saves_every_third_epoch_and_goes_on_from_there(
    bench: Bench, undisturbed: list[tuple[int, float, float]]
) -> None:
    script = disturbed(bench, "--report", "custom", at=(5, 5))
    assert marks(script, 5) == ["at 4 2", "at 5 2", "at 4 3", "at 5 3", "at 6 3"]
    assert learned(bench.root) == undisturbed
    saved = [path.name for path in sorted(bench.root.glob("*/checkpoint_*"))]
    assert len(saved) == 2
    assert bench.problems() == []


def test_shards_of_all_ranks_are_taken_up_after_deaths(
    bench: Bench, undisturbed: list[tuple[int, float, float]]
) -> None:
    script = disturbed(bench, "--strategy", "fsdp", at=(3, 5))
    assert marks(script, 5) == ["at 3 2", "at 4 2", "at 5 2", "at 5 3", "at 6 3"]
    assert learned(bench.root) == [pytest.approx(row, rel=1e-4) for row in undisturbed]
    for checkpoint in bench.root.glob("*/checkpoint_*/checkpoint.ckpt"):
        assert {path.name for path in checkpoint.iterdir()} == {
            ".metadata",
            "meta.pt",
            "__0_0.distcp",
            "__1_0.distcp",
        }
    assert bench.problems() == []


def test_the_readme_names_what_there_is() -> None:
    text, code = (EXAMPLE.parent / "README.md").read_text(), EXAMPLE.read_text()
    told = re.findall(r"`checkpoints\.(\w+)`", text)
    assert len(told) >= 4
    for name in told:
        assert re.search(rf"^(def {name}\(|class {name}\(|{name} = )", code, re.MULTILINE), name
