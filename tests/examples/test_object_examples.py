"""The example of shared objects: killed and resumed by a script that puts them again."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.runtime import objects as shared_objects
from tests.rig import checker
from tests.rig.bench import Bench, workbench

pytestmark = pytest.mark.process

EXAMPLE = Path(__file__).parents[2] / "examples" / "objects" / "large_models.py"
# The example as it is, but for what its trials call to report.
DRIVER = """
import sys
from pathlib import Path

from holdfast import tune
from tests.rig.script import mark, wait_at

path = Path(sys.argv[1])
sys.path.insert(0, str(path.parent))
import large_models

plainly, loop = tune.report, large_models.train_fn

def train_fn(config):
    def report(metrics, **more):
        mark("at", metrics["model_id"], metrics["epoch"])
        wait_at(f"epoch-{metrics['epoch']}")
        plainly(metrics, **more)
    tune.report = report
    loop(config)

if __name__ == "__main__":
    large_models.train_fn = train_fn
    large_models.main(sys.argv[2:])
"""
# The same, but what was put is not put again.
FORGETFUL = """
import sys
from pathlib import Path

from holdfast import tune

sys.path.insert(0, str(Path(sys.argv[1]).parent))
from large_models import train_fn

tune.Tuner.restore(sys.argv[2], train_fn).fit()
"""


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with workbench(tmp_path, EXAMPLE) as made:
        made.environ[shared_objects.FOLDER] = str(tmp_path / "objects")
        yield made


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "result.json").read_text().splitlines()]


def objects(bench: Bench) -> list[Path]:
    return [path for path in (bench.folder / "objects").rglob("*") if path.is_file()]


def test_the_example_resumes_with_what_is_put_again_and_leaves_nothing(bench: Bench) -> None:
    driver, storage = bench.write(DRIVER, "driver.py"), bench.folder / "storage"
    arguments = (str(EXAMPLE), "--storage", str(storage), "--name", "run", "--epochs", "4")
    gate = bench.gate("epoch-3")
    script = bench.run(driver, *arguments)
    for model in (1, 2):
        script.wait_for(f"at {model} 3")
    script.dies()
    gate.open()
    assert len(objects(bench)) == 3  # SIGKILL leaves no one to remove them

    forgetful = bench.run(
        bench.write(FORGETFUL, "forgetful.py"), str(EXAMPLE), str(storage / "run")
    )
    assert forgetful.ends() == 1
    forgetful.finish_reading()
    *_, told = forgetful.stderr.strip().splitlines()
    assert "model_ref/0" in told
    assert "data_ref of param_space" in told
    assert "has ended" in told
    assert "param_space=..." in told
    assert objects(bench) == []  # the next run removes them

    again = bench.run(driver, *arguments).succeeds()
    assert "model 1: 4 epochs" in again.stdout
    assert "model 2: 4 epochs" in again.stdout
    for trial in (storage / "run").glob("train_fn_*"):
        assert [row["epoch"] for row in rows(trial)] == [1, 2, 3, 4]
    assert checker.check(storage / "run") == []
    assert os.listdir(bench.folder / "objects") == []


@pytest.mark.parametrize("end", ["exit", "error", "interrupt"])
def test_the_end_of_a_script_removes_what_it_has_put(bench: Bench, end: str) -> None:
    script = bench.run(
        bench.write(
            "import signal, sys\n"
            "import holdfast\n"
            "from tests.rig.script import mark\n"
            "holdfast.put(b'x')\n"
            "mark('put')\n"
            "if sys.argv[1] == 'interrupt':\n"
            "    signal.raise_signal(signal.SIGINT)\n"
            "if sys.argv[1] == 'error':\n"
            "    raise LookupError('of the script')\n"
        ),
        end,
    )
    script.wait_for("put")
    assert (script.ends() == 0) == (end == "exit")
    assert objects(bench) == []
