"""The examples of tracking, run as a user runs them; the data in the tracker is read back.

Each is disturbed: the controller is killed in epoch 3, and the rank that logs in epoch 4 after the
restart, both between the logging of an epoch and its report.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.rig.bench import Bench, workbench
from tests.rig.script import UserScript
from tests.rig.trackers import tracked
from tests.rig.trackers.tracked import Logged

pytestmark = [
    pytest.mark.process,
    pytest.mark.server,
    # MLflow's own use of SQLAlchemy 2.1.
    pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated"),
]

REPOSITORY = Path(__file__).parents[3]
EXAMPLES = REPOSITORY / "examples" / "tracking"
DRIVER = Path(__file__).parents[1] / "driver.py"
# Frameworks take half a minute to import on a busy machine.
PATIENCE_S = 180.0


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with workbench(tmp_path, DRIVER) as made:
        yield made


# -- each example, disturbed ----------------------------------------------------------------------

EPOCHS = [0, 1, 2, 3]
# By the first attempt 0, 1, 2, by the second 2, 3, by the third 3.
EPOCHS_AS_LOGGED = [0, 1, 2, 2, 3, 3]
# Two batches an epoch.
BATCHES = [0, 1, 2, 3, 4, 5, 6, 7]
BATCHES_AS_LOGGED = [0, 1, 2, 3, 4, 5, 4, 5, 6, 7, 6, 7]


def trial_folder(bench: Bench) -> Path:
    (folder,) = bench.root.glob("TorchTrainer_*/")
    return folder


def trial_id(bench: Bench) -> str:
    return "_".join(trial_folder(bench).name.split("_")[1:3])


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    bench: Bench
    server: str


Read = Callable[[Setting], list[Logged]]


def from_wandb(setting: Setting) -> list[Logged]:
    """The newest run has everything; each attempt has left one with the same id."""
    logged = tracked.wandb_offline(setting.bench.storage)
    assert len(logged) == 3
    assert {run for run, _ in logged} == {trial_id(setting.bench)}
    return logged[-1][1]


def from_comet(setting: Setting) -> list[Logged]:
    """An attempt that is killed leaves an empty archive: the last one's has all."""
    archives = tracked.comet_offline(trial_folder(setting.bench) / "comet")
    assert len(archives) == 3
    assert {key for key, _ in archives} == {
        hashlib.sha1(trial_id(setting.bench).encode()).hexdigest()
    }
    return archives[-1][1]


def from_tensorboard(setting: Setting) -> list[Logged]:
    return tracked.tensorboard(trial_folder(setting.bench) / "tensorboard")


def from_lightning_tensorboard(setting: Setting) -> list[Logged]:
    return tracked.tensorboard(trial_folder(setting.bench) / "demo-run")


def database(setting: Setting) -> str:
    return f"sqlite:///{setting.bench.storage}/mlflow.db"


def from_mlflow(experiment: str, uri: Callable[[Setting], str]) -> Read:
    """One run, which has ended, of the trial's."""

    def read(setting: Setting) -> list[Logged]:
        (run,) = tracked.mlflow_runs(uri(setting), experiment)
        assert run.data.tags["trial_id"] == trial_id(setting.bench)
        assert run.info.status == "FINISHED"
        return tracked.mlflow_logged(uri(setting), experiment, "loss")

    return read


def once(read: Read) -> Read:
    """Each step once: how many were sent before a kill depends on timing."""
    return lambda setting: list({found.step: found for found in read(setting)}.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """`steps` are those of the metric `loss`."""

    name: str
    arguments: tuple[str, ...] = ()
    read: Read
    steps: list[int]


CASES = {
    "W&B": Example(name="torch_exp_tracking_wandb", read=from_wandb, steps=EPOCHS),
    "W&B, by the trial's id": Example(name="fault_tolerant", read=from_wandb, steps=EPOCHS),
    "MLflow in a database": Example(
        name="torch_exp_tracking_mlflow",
        read=from_mlflow("torch-mlflow", database),
        steps=EPOCHS_AS_LOGGED,
    ),
    "MLflow in files": Example(
        name="steps_mlflow",
        arguments=("local",),
        read=from_mlflow("my-experiment", lambda setting: f"file:{setting.bench.storage}/mlruns"),
        steps=EPOCHS_AS_LOGGED,
    ),
    "MLflow on a server": Example(
        name="steps_mlflow",
        arguments=("server", "--uri", "{server}"),
        read=from_mlflow("my-experiment", lambda setting: setting.server),
        steps=EPOCHS_AS_LOGGED,
    ),
    "Comet": Example(name="steps_comet", read=from_comet, steps=EPOCHS),
    "TensorBoard": Example(name="steps_tensorboard", read=from_tensorboard, steps=EPOCHS),
    "WandbLogger": Example(name="lightning_exp_tracking_wandb", read=from_wandb, steps=BATCHES),
    "MLFlowLogger": Example(
        name="lightning_exp_tracking_mlflow",
        arguments=("--tracking-uri", "{server}"),
        read=from_mlflow("demo-project", lambda setting: setting.server),
        steps=BATCHES_AS_LOGGED,
    ),
    "mlflow.pytorch.autolog": Example(
        name="lightning_exp_tracking_mlflow",
        arguments=("--autolog",),
        read=once(from_mlflow("demo-project", database)),
        steps=EPOCHS,
    ),
    "CometLogger": Example(name="lightning_exp_tracking_comet", read=from_comet, steps=BATCHES),
    "TensorBoardLogger": Example(
        name="lightning_exp_tracking_tensorboard",
        read=from_lightning_tensorboard,
        steps=BATCHES_AS_LOGGED,
    ),
}


def disturbed(bench: Bench, example: str, *arguments: str) -> UserScript:
    bench.environ["HOLDFAST_TEST_DIES"] = "2 4 0"
    bench.environ["HOLDFAST_TENSORBOARD"] = "0"
    given = (str(EXAMPLES / f"{example}.py"), *arguments)
    given += ("--storage", str(bench.storage), "--name", "run")
    gate = bench.gate("report-3")
    script = bench.run(DRIVER, *given)
    script.wait_for("at 3 1", PATIENCE_S)
    script.dies()
    gate.open()
    after = bench.run(DRIVER, *given).succeeds(PATIENCE_S)
    assert "Resuming" in after.stdout
    assert [after.wait_for("at") for _ in range(3)] == ["at 3 2", "at 4 2", "at 4 3"]
    assert after.left() == []
    return after


SMOKE = "TensorBoard"


@pytest.mark.parametrize(
    "tracker",
    [pytest.param(name, marks=pytest.mark.smoke if name == SMOKE else ()) for name in CASES],
)
def test_no_step_is_lost_and_the_run_stays_one(
    bench: Bench, request: pytest.FixtureRequest, tracker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # to read with; the example sets it
    case = CASES[tracker]
    server = ""
    if any("{server}" in text for text in case.arguments):  # it takes long to start
        server = request.getfixturevalue("mlflow_server").uri
    disturbed(bench, case.name, *(text.format(server=server) for text in case.arguments))
    logged = case.read(Setting(bench=bench, server=server))
    assert sorted(tracked.steps(logged, "loss")) == sorted(case.steps)
    # The URI of a database, in the user's own config, is of one place.
    assert [text for text in bench.problems() if "tuner.pkl names" not in text] == []


# -- the other examples ---------------------------------------------------------------------------


def undisturbed(bench: Bench, example: str, *arguments: str) -> UserScript:
    bench.environ["HOLDFAST_TEST_DIES"] = ""
    given = (str(EXAMPLES / f"{example}.py"), *arguments)
    script = bench.run(DRIVER, *given, "--storage", str(bench.storage), "--name", "run")
    script.ends(PATIENCE_S)
    script.finish_reading()
    assert script.left() == []
    return script


def test_the_pseudo_code_logs_in_rank_0_alone(bench: Bench) -> None:
    undisturbed(bench, "native").succeeds()
    logged = (trial_folder(bench) / "logged.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in logged] == EPOCHS


def test_a_credential_is_in_each_worker_and_in_no_file(bench: Bench) -> None:
    key = "d41d8cd9" * 5
    undisturbed(bench, "credentials", "--key", key).succeeds()
    (path,) = bench.root.glob("*/result.json")
    assert json.loads(path.read_text().splitlines()[-1])["key_length"] == len(key)
    files = [path for path in bench.storage.glob("**/*") if path.is_file()]
    assert [path for path in files if key.encode() in path.read_bytes()] == []


def test_wandb_offline_writes_to_the_directory_that_it_was_given(bench: Bench) -> None:
    undisturbed(bench, "steps_wandb", "offline").succeeds()
    ((run, logged),) = tracked.wandb_offline(bench.storage / "wandb")
    assert run == trial_id(bench)
    assert tracked.steps(logged, "loss") == EPOCHS


def test_wandb_refuses_at_login_what_is_not_a_key(bench: Bench) -> None:
    script = undisturbed(bench, "steps_wandb", "login", "--key", "your_api_key")
    assert script.ends() == 1
    script.finish_reading()
    assert "API key must have 40+ characters, has 12." in script.stderr
    assert "your_api_key" not in script.stderr


def test_databricks_without_its_file_is_an_error_that_says_so(bench: Bench) -> None:
    missing = str(bench.folder / "databrickscfg")
    script = undisturbed(bench, "steps_mlflow", "databricks", "--config-file", missing)
    assert script.ends() == 1
    script.finish_reading()
    assert "Reading Databricks credential configuration failed" in script.stderr
