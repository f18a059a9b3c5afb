"""The resources of trials: counted, never given twice, and set in the libraries inside them."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import tune
from holdfast.trial.errors import ImpossibleResources, InvalidConfig, TuneError


def meet(config: dict[str, Any]) -> None:
    """Meet the other trial of the pair, which is only possible if both run at once."""
    began = time.monotonic()
    pair, side = divmod(config["number"], 2)
    path = Path(config["meetings"], str(pair))
    try:
        os.mkfifo(path)
    except FileExistsError:
        assert path.is_fifo()
    with open(path, "w" if side else "r"):
        pass
    tune.report(
        {
            "began": began,
            "ended": time.monotonic(),
            "omp": os.environ["OMP_NUM_THREADS"],
            "gpus": os.environ.get("CUDA_VISIBLE_DEVICES", "unset"),
        }
    )


def pass_by(config: dict[str, Any]) -> None:
    """Like `meet`, but for trials of which only one runs at a time."""
    began = time.monotonic()
    tune.report(
        {
            "began": began,
            "ended": time.monotonic(),
            "omp": os.environ["OMP_NUM_THREADS"],
            "gpus": os.environ.get("CUDA_VISIBLE_DEVICES", "unset"),
        }
    )


def most_at_once(results: tune.ResultGrid) -> int:
    """How many trials ran at the same moment, by the machine's monotonic clock."""
    moments = []
    for result in results:
        assert result.metrics is not None
        moments += [(result.metrics["began"], 1), (result.metrics["ended"], -1)]
    running = most = 0
    for _, change in sorted(moments):
        running += change
        most = max(most, running)
    return most


@pytest.fixture
def space(tmp_path: Path) -> dict[str, Any]:
    meetings = tmp_path / "meetings"
    meetings.mkdir()
    return {"number": tune.grid_search([0, 1, 2, 3]), "meetings": str(meetings)}


def seen(results: tune.ResultGrid, name: str) -> set[Any]:
    return {(result.metrics or {})[name] for result in results}


# -- counting -----------------------------------------------------------------------------------


def test_as_many_trials_run_at_once_as_there_are_cpus_and_no_more(
    fit: Any, space: dict[str, Any]
) -> None:
    holdfast.init(num_cpus=2)
    results = fit(meet, space)
    assert results.num_errors == 0
    assert most_at_once(results) == 2
    assert seen(results, "omp") == {"1"}
    assert seen(results, "gpus") == {"unset"}


@pytest.mark.parametrize(
    ("machine", "asks", "threads"),
    [
        ({"num_cpus": 3}, {"cpu": 2}, "2"),
        ({"num_cpus": 8, "resources": {"licence": 1}}, {"cpu": 1, "licence": 1}, "1"),
        (
            {"num_cpus": 3},
            tune.PlacementGroupFactory([{"CPU": 1}, {"CPU": 0.5}, {"CPU": 0.5}]),
            "2",
        ),
    ],
    ids=["several CPUs", "a resource of the user's", "bundles"],
)
def test_a_trial_holds_all_that_it_asks_for_and_may_use_as_many_threads(
    fit: Any, space: dict[str, Any], machine: dict[str, Any], asks: Any, threads: str
) -> None:
    holdfast.init(**machine)
    results = fit(tune.with_resources(pass_by, asks), space)
    assert most_at_once(results) == 1
    assert seen(results, "omp") == {threads}


def test_threads_that_the_user_has_set_stay_as_they_are(
    fit: Any, monkeypatch: pytest.MonkeyPatch, space: dict[str, Any]
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    results = fit(pass_by, {**space, "number": 0})
    assert seen(results, "omp") == {"7"}


def test_two_halves_share_one_gpu(fit: Any, space: dict[str, Any]) -> None:
    holdfast.init(num_cpus=8, num_gpus=1)
    results = fit(tune.with_resources(meet, {"cpu": 1, "gpu": 0.5}), space)
    assert most_at_once(results) == 2
    assert seen(results, "gpus") == {"0"}


def test_each_trial_sees_a_gpu_of_its_own_by_its_name_outside(
    fit: Any, space: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,GPU-abc")
    results = fit(tune.with_resources(meet, {"cpu": 0, "gpu": 1}), space)
    assert most_at_once(results) == 2
    assert seen(results, "gpus") == {"3", "GPU-abc"}


def test_a_trial_without_gpu_sees_none_where_others_have_some(
    fit: Any, space: dict[str, Any]
) -> None:
    holdfast.init(num_gpus=2)
    results = fit(pass_by, {**space, "number": 0})
    assert seen(results, "gpus") == {""}


def test_max_concurrent_trials_holds_below_what_the_resources_allow(
    fit: Any, space: dict[str, Any]
) -> None:
    holdfast.init(num_cpus=8)
    results = fit(meet, space, tune.TuneConfig(max_concurrent_trials=2))
    assert most_at_once(results) == 2


def test_a_function_of_the_config_says_what_each_trial_asks_for(fit: Any) -> None:
    def train(config: dict[str, Any]) -> None:
        tune.report({"asked": tune.get_context().get_trial_resources().required_resources["CPU"]})

    holdfast.init(num_cpus=4)
    asks = tune.with_resources(train, lambda config: {"cpu": config["n"]})
    results = fit(asks, {"n": tune.grid_search([1, 2.5])})
    assert [result.metrics["asked"] for result in results] == [1, 2.5]


# -- what cannot be -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "named"),
    [
        ({"cpu": 1000}, "1000"),
        ({"gpu": 3}, "'GPU': 3"),
        ({"tpu": 1}, "'tpu': 1"),
        ({"cpus": 1}, "Instead of 'cpus', use 'cpu'"),
    ],
)
def test_resources_that_the_machine_never_has_fail_before_anything_starts(
    fit: Any, tmp_path: Path, wanted: dict[str, float], named: str
) -> None:
    holdfast.init(num_cpus=2, num_gpus=2)
    with pytest.raises(ImpossibleResources, match=named) as caught:
        fit(tune.with_resources(pass_by, wanted), name="never")
    assert caught.value.available == {"CPU": 2, "GPU": 2}
    assert "'CPU': 2" in str(caught.value)
    assert not list(tmp_path.glob("results/never/pass_by*"))


def test_a_config_that_asks_for_too_much_ends_the_run_naming_what_there_is(fit: Any) -> None:
    asks = tune.with_resources(pass_by, lambda config: {"cpu": config["n"]})
    holdfast.init(num_cpus=2)
    with pytest.raises(TuneError, match=r"'CPU': 64.*this machine has \{'CPU': 2"):
        fit(asks, {"n": tune.grid_search([1, 64])})


@pytest.mark.parametrize(
    "ask",
    [
        lambda: tune.with_resources(pass_by, {"cpu": -1}),
        lambda: tune.with_resources(pass_by, {"gpu": float("nan")}),
        lambda: tune.with_resources(pass_by, {"cpu": "two"}),  # type: ignore[dict-item]
        lambda: tune.with_resources(pass_by, [1]),  # type: ignore[arg-type]
        lambda: tune.PlacementGroupFactory([]),
        lambda: holdfast.init(num_cpus=-2),
        lambda: holdfast.init(num_gpus=0.5),
        lambda: holdfast.init(resources={"disk": -1}),
        lambda: holdfast.init(runtime_env={"pip": ["torch"]}),
        lambda: holdfast.init(runtime_env={"env_vars": {"A": 1}}),
    ],
)
def test_an_amount_that_means_nothing_is_refused_at_once(ask: Any) -> None:
    with pytest.raises(InvalidConfig):
        ask()
    assert not holdfast.is_initialized()


def test_init_twice_is_refused_by_default() -> None:
    holdfast.init(num_cpus=1)
    with pytest.raises(InvalidConfig, match="shutdown"):
        holdfast.init(num_cpus=2)
    holdfast.init(num_cpus=2, ignore_reinit_error=True)
    holdfast.shutdown()
    assert not holdfast.is_initialized()
    holdfast.init(num_cpus=2)


# -- variables ----------------------------------------------------------------------------------


def test_two_experiments_in_one_process_share_what_the_machine_has(
    fit: Any, tmp_path: Path
) -> None:
    """The second one's trial has been launched and waits when the first one's is released."""
    begun, waits, ended = tmp_path / "begun", tmp_path / "waits", tmp_path / "ended"
    os.mkfifo(begun)
    os.mkfifo(waits)

    def holds_the_cpu(config: dict[str, Any]) -> None:
        begun.write_text("it is held")
        waits.read_text()
        ended.touch()

    def second(config: dict[str, Any]) -> None:
        if config["cpus"] == 0:
            waits.write_text("the one before this is launched")
        tune.report({"first_has_ended": ended.exists()})

    asking = tune.with_resources(second, lambda config: {"cpu": config["cpus"]})
    holdfast.init(num_cpus=1)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(fit, holds_the_cpu)
        begun.read_text()
        results = fit(asking, {"cpus": tune.grid_search([1, 0])})
        assert first.result().num_errors == 0
    assert results[0].metrics["first_has_ended"] is True
