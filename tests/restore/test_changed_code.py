"""A user corrects the code of an experiment and runs it again: by script, or by command."""

from __future__ import annotations

import json

import pytest

from holdfast.cli import main
from tests.rig.bench import Bench

SCRIPT = """
import sys
from holdfast import tune

def share(x):
    return 6 / x

def train(config):
    tune.report({"loss": share(config["x"])})

if __name__ == "__main__":
    tuner = tune.Tuner(
        train,
        param_space={"x": tune.grid_search([0, 1, 2])},
        tune_config=tune.TuneConfig(metric="loss", mode="min"),
        run_config=tune.RunConfig(name="run", storage_path=sys.argv[1]),
    )
    print([result.metrics.get("loss") for result in tuner.fit(resume="auto")])
"""
CORRECTED = SCRIPT.replace("6 / x", "6 / (x + 1)")
COMMAND = "from holdfast.cli import main\nimport sys\nsys.exit(main())\n"


def shown_by(bench: Bench, *words: str, rc: int = 0) -> str:
    """What a script prints that is run in the folder of the scripts."""
    script = bench.run(bench.write(COMMAND, "command.py"), *words, cwd=bench.folder)
    assert script.ends() == rc, script.stderr
    script.finish_reading()
    return script.stderr


def run(bench: Bench, source: str) -> tuple[str, str]:
    script = bench.run(bench.write(source, "own.py"), str(bench.storage), cwd=bench.folder)
    script.succeeds()
    script.finish_reading()
    return script.stdout, script.stderr


@pytest.mark.rest
def test_a_script_with_corrected_code_runs_the_failed_trials_again(bench: Bench) -> None:
    before, told = run(bench, SCRIPT)
    assert json.loads(before.replace("None", "null")) == [None, 6.0, 3.0]
    again = f"{bench.root} --restart-errored --trainable {bench.folder}/own.py:train"
    assert "To retry the failed trials: correct the code and start this script again, or " in told
    assert told.rstrip().endswith(f"holdfast resume {again}")
    _, same = run(bench, "# A comment changes nothing.\n" + SCRIPT)
    assert "has changed" not in same
    assert "resumed" not in same
    assert "ResumeConfig(errored='restart') or " in same
    script = f"{bench.folder}/own.py:train"
    assert f"resume --restart-errored --trainable {script} {bench.root} retries)" in same
    after, told = run(bench, CORRECTED)
    assert json.loads(after) == [6.0, 6.0, 3.0]
    assert "train() (own.py:8) has changed since these trials ran: 1 failed trial starts" in told
    assert "the results of the other 2 are of the earlier code. For a new run use" in told
    _, told = run(bench, CORRECTED)
    assert "run was finished: its results are returned as they are" in told
    assert "has changed" not in told


def test_a_finished_run_starts_no_process_that_imports_the_code(bench: Bench) -> None:
    module = "import os, pathlib\nfrom holdfast import tune\n"
    module += "pathlib.Path(__file__).with_name(f'imported-{os.getpid()}').touch()\n"
    bench.write(module + "def train(config):\n    tune.report({'loss': config['x']})\n", "own2.py")
    main = SCRIPT.partition("if __name__")
    source = "import sys\nfrom holdfast import tune\nfrom own2 import train\n" + "".join(main[1:])
    imported = []
    for _ in range(2):
        run(bench, source)
        imported.append(len(list(bench.folder.glob("imported-*"))))
    assert imported[0] >= 2
    assert imported[1] == imported[0] + 1  # the script itself


def test_resume_refuses_to_retry_with_the_code_that_failed_and_names_the_command(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    run(bench, SCRIPT)
    bench.write(CORRECTED, "own.py")
    root = str(bench.root)
    refused = shown_by(bench, "resume", "--restart-errored", root, rc=2)
    assert "train() (own.py:8) has changed since the experiment stored it" in refused
    script = f"{bench.folder}/own.py:train"
    words = ["resume", "--restart-errored", "--trainable", script, root]
    assert refused.rstrip().endswith(" ".join(words))
    shown_by(bench, *words)
    assert main(["show", "--json", root]) == 0
    assert json.loads(capsys.readouterr().out)["counts"] == {"TERMINATED": 3}
    # The code that ran last is stored: a later restore runs it, too.
    assert "has changed" not in shown_by(bench, "resume", root)


def test_a_script_that_would_run_when_it_is_imported_is_refused(bench: Bench) -> None:
    run(bench, SCRIPT)
    bench.write(CORRECTED.replace('if __name__ == "__main__":', "if True:"), "own.py")
    words = ["resume", "--restart-errored", "--trainable", "own.py:train", str(bench.root)]
    assert "own.py calls fit() when it is imported" in shown_by(bench, *words, rc=2)
    words[3] = "other.py:train"
    assert f"there is no file {bench.folder}/other.py" in shown_by(bench, *words, rc=2)
