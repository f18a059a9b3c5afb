"""The decisions of tracker callbacks without their libraries, none of which is installed here."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast import tune
from holdfast.air.integrations import comet, mlflow, wandb
from holdfast.air.integrations.mlflow import legal_name, without_password
from holdfast.air.integrations.run_per_trial import flatten_dict, metrics_of, numbers_in
from holdfast.air.integrations.wandb import has_key, is_offline
from holdfast.experiment.callbacks.trial_view import Surroundings
from holdfast.experiment.trackers.tracker import TrackedTrial
from holdfast.lazy import Framework
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.trial import Stop, StopReason
from holdfast.tune.logger import (
    CSVLoggerCallback,
    JsonLoggerCallback,
    TBXLoggerCallback,
    pretty_print,
)
from tests.rig.runs.recorded import RecordedExperiment

CALLBACKS = [
    (wandb.WandbLoggerCallback, "wandb"),
    (mlflow.MLflowLoggerCallback, "mlflow"),
    (comet.CometLoggerCallback, "comet"),
]


def train(config: dict[str, Any]) -> None:
    tune.report({"loss": 1.0})


def run(tmp_path: Path, *callbacks: Any) -> Any:
    run_config = tune.RunConfig(storage_path=str(tmp_path), name="run", callbacks=list(callbacks))
    return tune.Tuner(train, run_config=run_config).fit()


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.chdir(tmp_path)
    return {"HOME": str(tmp_path)}


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Framework, "check", lambda _: None)


@pytest.mark.parametrize(("kind", "extra"), CALLBACKS)
def test_a_tracker_that_is_not_installed_is_said_before_anything_is_written(
    tmp_path: Path, kind: Callable[[], Any], extra: str
) -> None:
    with pytest.raises(ImportError, match=rf"pip install .*'{extra}"):
        run(tmp_path, kind())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("setup", [wandb.setup_wandb, mlflow.setup_mlflow])
def test_setting_up_what_is_not_installed_names_the_extra(setup: Callable[[], Any]) -> None:
    with pytest.raises(ImportError, match=r"pip install '(wandb|mlflow)>="):
        setup()


@pytest.mark.usefixtures("installed")
def test_online_without_a_key_is_refused_with_what_to_do(environ: dict[str, str]) -> None:
    with pytest.raises(InvalidConfig, match="wandb login"):
        wandb.WandbLoggerCallback(project="p").check(environ)
    with pytest.raises(InvalidConfig, match="COMET_API_KEY"):
        comet.CometLoggerCallback().check(environ)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("given", "more"),
    [
        ({"api_key": "k"}, {}),
        ({"mode": "offline"}, {}),
        ({}, {"WANDB_MODE": "disabled"}),
        ({}, {"WANDB_API_KEY": "k"}),
    ],
)
def test_a_key_or_an_offline_mode_will_do_for_wandb(
    environ: dict[str, str], given: dict[str, Any], more: Mapping[str, str]
) -> None:
    wandb.WandbLoggerCallback(**given).check({**environ, **more})


@pytest.mark.usefixtures("installed")
def test_a_file_of_a_key_that_is_not_there_is_named(environ: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"api_key_file='/no/such' cannot be read"):
        wandb.WandbLoggerCallback(api_key_file="/no/such").check(environ)


@pytest.mark.usefixtures("installed")
def test_a_key_or_archives_will_do_for_comet(environ: dict[str, str], tmp_path: Path) -> None:
    comet.CometLoggerCallback(online=False).check(environ)
    comet.CometLoggerCallback(api_key="k").check(environ)
    (tmp_path / ".comet.config").write_text("[comet]\napi_key = k\n")
    comet.CometLoggerCallback().check(environ)


def test_what_the_command_wandb_left_is_found(environ: dict[str, str], tmp_path: Path) -> None:
    assert not has_key(environ)
    (tmp_path / ".netrc").write_text("machine api.wandb.ai login user password secret\n")
    assert has_key(environ)
    assert not has_key({**environ, "WANDB_BASE_URL": "https://elsewhere.example"})
    assert not is_offline(environ, None)
    (tmp_path / "wandb").mkdir()
    (tmp_path / "wandb" / "settings").write_text("[default]\nmode = offline\n")
    assert is_offline(environ, None)


@pytest.mark.parametrize(
    "tracker",
    [
        wandb.WandbLoggerCallback(api_key="s3cret"),
        mlflow.MLflowLoggerCallback("http://me:s3cret@host/x", tracking_token="s3cret"),
        comet.CometLoggerCallback(api_key="s3cret"),
    ],
)
def test_no_pickle_of_a_tracker_has_its_key(tracker: Any) -> None:
    assert b"s3cret" not in pickle.dumps(tracker)
    assert "s3cret" in str(tracker.secrets())


def test_a_restore_of_mlflow_goes_where_its_surroundings_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tracker = mlflow.MLflowLoggerCallback("http://me:pw@host:5000")
    assert pickle.loads(pickle.dumps(tracker)).tracking_uri == "http://host:5000"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:new@elsewhere:5000")
    assert pickle.loads(pickle.dumps(tracker)).tracking_uri == "http://me:new@elsewhere:5000"
    assert tracker.secrets()["tracking_uri"] == "http://me:pw@host:5000"


def test_a_uri_loses_its_password_alone() -> None:
    assert without_password("https://me:pw@host:5000/x?y") == "https://host:5000/x?y"
    assert without_password("sqlite:////a/b.db") == "sqlite:////a/b.db"
    assert without_password(None) is None


class Service:
    """A tracker's library and service: what a run has in the end."""

    def __init__(self) -> None:
        self.tags: dict[str, Any] = {}
        self.others: dict[str, Any] = {}


class FakeMlflowClient(Service):
    def search_runs(self, *_: Any, **__: Any) -> list[Any]:
        return []

    def create_run(self, _: str, *, tags: dict[str, Any], run_name: str) -> Any:
        self.tags = dict(tags)
        return SimpleNamespace(info=SimpleNamespace(run_id="run"))

    def set_tag(self, run_id: str, name: str, value: str) -> None:
        self.tags[name] = value

    def update_run(self, *_: str) -> None: ...

    def set_terminated(self, *_: str) -> None: ...


class FakeWandbRun(SimpleNamespace):
    tags: tuple[str, ...]

    def define_metric(self, *_: Any, **__: Any) -> None: ...

    def finish(self, exit_code: int) -> None: ...


class FakeCometExperiment(Service):
    def add_tags(self, tags: list[str]) -> None:
        self.tags = dict.fromkeys(tags)

    def log_other(self, name: str, value: Any) -> None:
        self.others[name] = value

    def log_others(self, others: dict[str, Any]) -> None: ...

    def log_parameters(self, parameters: dict[str, Any]) -> None: ...

    def set_name(self, name: str) -> None: ...

    def end(self) -> None: ...


class TestARunInATracker:
    """It has the tags of the RunConfig, and says why its trial has ended."""

    @pytest.fixture
    def trial(self, tmp_path: Path) -> TrackedTrial:
        """A trial that ASHA has stopped."""
        made = RecordedExperiment(tmp_path / "run")
        ended = made.begin({})
        made.report(ended, {"loss": 1.0})
        made.finish(ended)
        pruned = replace(made.machine.trials[ended], stop=Stop(reason=StopReason.PRUNED))
        around = Surroundings.of(
            made.layout, trainable_name="train", experiment_path="", config_of=lambda _: {}
        )
        return TrackedTrial(pruned, around, "e", {"data": "v3", "long": "x" * 100})

    def test_in_mlflow(self, trial: TrackedTrial, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(mlflow, "log_params", lambda *_: None)
        tracker = mlflow.MLflowLoggerCallback(tags={"by": "ana"})
        client = tracker._client = FakeMlflowClient()
        tracker._experiment_id = "1"
        tracker.log_trial_start(trial)
        assert client.tags["data"] == "v3"
        assert client.tags["by"] == "ana"
        tracker.log_trial_end(trial)
        tracker.flush()
        assert client.tags["stop_reason"] == "pruned"

    def test_in_wandb(self, trial: TrackedTrial, monkeypatch: pytest.MonkeyPatch) -> None:
        runs: list[FakeWandbRun] = []

        def init(tags: list[str], **_: Any) -> FakeWandbRun:
            update = SimpleNamespace(update=lambda *_, **__: None)
            runs.append(FakeWandbRun(tags=tuple(tags), config=update))
            return runs[-1]

        monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
        tracker = wandb.WandbLoggerCallback(tags=["mine"])
        tracker.log_trial_start(trial)
        assert runs[0].tags == ("mine", "data=v3", f"long={'x' * 59}")
        runs[0].tags += ("stop_reason=failed",)  # of an earlier attempt
        tracker.log_trial_end(trial)
        assert runs[0].tags == ("mine", "data=v3", f"long={'x' * 59}", "stop_reason=pruned")

    def test_in_comet(self, trial: TrackedTrial, monkeypatch: pytest.MonkeyPatch) -> None:
        made = FakeCometExperiment()
        library = SimpleNamespace(start=lambda **_: made, ExperimentConfig=SimpleNamespace)
        monkeypatch.setitem(sys.modules, "comet_ml", library)
        config = SimpleNamespace(set_global_experiment=lambda _: None)
        monkeypatch.setitem(sys.modules, "comet_ml.config", config)
        tracker = comet.CometLoggerCallback(tags=["mine"])
        tracker.log_trial_start(trial)
        assert list(made.tags)[:2] == ["mine", "data=v3"]
        tracker.log_trial_end(trial)
        assert made.others == {"stop_reason": "pruned", "status": "finished"}


def test_a_row_is_flat_and_has_what_was_measured() -> None:
    row = {"loss": 1.0, "val": {"acc": {"top1": 2}}, "config": {"lr": 1}, "pid": 7, "done": True}
    assert metrics_of(row) == {"loss": 1.0, "val/acc/top1": 2}
    assert flatten_dict({"a": {}, "b": [1]}) == {"b": [1]}


def test_a_metric_named_like_one_of_holdfast_is_the_users() -> None:
    assert metrics_of({"attempt": 7, "timestamp": 3}) == {"attempt": 7, "timestamp": 3}


def test_a_value_that_is_not_a_number_is_not_a_metric() -> None:
    found = numbers_in({"nan": float("nan"), "big": 10**400, "text": "x", "yes": True, "l": [1]})
    assert sorted(found) == ["nan", "yes"]


def test_names_that_mlflow_would_refuse_are_changed_and_stay_different() -> None:
    assert legal_name("val/acc top-1.x:y_z") == "val/acc top-1.x:y_z"
    changed = {legal_name("a$b"), legal_name("a&b"), legal_name("a//b"), legal_name("../x")}
    assert len(changed) == 4
    assert legal_name("a$b").startswith("a_b-")
    assert len(legal_name("n" * 400)) <= 250


def test_the_callbacks_of_files_write_none_twice(tmp_path: Path) -> None:
    run(tmp_path, JsonLoggerCallback(), CSVLoggerCallback(), TBXLoggerCallback())
    (folder,) = (tmp_path / "run").glob("train_*")
    names = [path.name for path in folder.iterdir()]
    assert {"result.json", "params.json", "progress.csv"} <= set(names)
    assert len([name for name in names if name.startswith("events.out.tfevents")]) == 1
    assert len((folder / "result.json").read_text().splitlines()) == 1


def test_a_row_is_printed_for_people() -> None:
    row = {"loss": 0.5, "val": {"acc": 1}, "config": {"lr": 1}, "none": None, "x": 1}
    assert pretty_print(row, exclude={"x"}) == "loss: 0.5\nval:\n  acc: 1"


def test_a_run_is_named_as_setup_wandb_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in Ray: `trial_id` is the run's id, `trial_name` its name."""
    (tmp_path / "wandb.py").write_text(
        "class Run(dict):\n"
        "    config = {}\n"
        "def init(**given):\n"
        "    run = Run(given)\n"
        "    run.config = type('Config', (), {'update': lambda self, *a, **k: None})()\n"
        "    return run\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    run = wandb.setup_wandb({"lr": 1}, trial_id="t7", trial_name="seven", mode="offline")
    assert (run["id"], run["name"], run["mode"]) == ("t7", "seven", "offline")
    assert not {"trial_id", "trial_name"} & run.keys()
    del sys.modules["wandb"]

    class Context:
        def get_world_rank(self) -> int:
            return 1

        def __getattr__(self, name: str) -> Callable[[], str]:
            return lambda: name

    named = wandb.names_of(Context(), "t7", None)
    assert (named["id"], named["name"]) == ("t7-1", "get_trial_name-rank-1")
