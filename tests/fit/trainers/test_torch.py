"""Real torch process groups on the ranks of one trial, over gloo on loopback."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import train, tune
from holdfast.experiment.worker.context import gpus_of
from holdfast.experiment.worker.train_loop import Rank
from holdfast.runtime import interpreter
from holdfast.train.ports import set_aside
from holdfast.train.torch import TorchConfig, TorchTrainer
from holdfast.trial.errors import InvalidConfig, TuneError
from tests.rig.isolation import trainables_by_value

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def loops() -> Iterator[Any]:
    """The training loops; pickled by value, as a script's are."""
    from tests.fit.trainers import torch_loops

    with trainables_by_value(torch_loops):
        yield torch_loops


def trainer(tmp_path: Path, loop: Any, **more: Any) -> TorchTrainer:
    workers = more.pop("workers", 2)
    scaling = train.ScalingConfig(num_workers=workers, resources_per_worker={"CPU": 0.1})
    run = {"storage_path": str(tmp_path / "results"), "name": "run", "verbose": 0}
    return TorchTrainer(
        loop,
        scaling_config=more.pop("scaling_config", scaling),
        run_config=train.RunConfig(**{**run, **more.pop("run", {})}),
        **more,
    )


def row(result: train.Result) -> dict[str, Any]:
    assert result.metrics is not None
    return dict(result.metrics)


def line(result: train.Result) -> tuple[float, float]:
    return row(result)["weight"], row(result)["bias"]


@pytest.mark.rest
def test_two_ranks_learn_what_one_learns_also_when_one_is_killed(
    tmp_path: Path, loops: Any
) -> None:
    failure = train.FailureConfig(max_failures=1)
    run = {"name": "two", "failure_config": failure}
    two = trainer(tmp_path, loops.regression, train_loop_config={"dies": True}, run=run).fit()
    assert line(two) == pytest.approx(loops.plain_regression(), rel=1e-5)
    rows = (Path(two.path) / "result.json").read_text().splitlines()
    assert [json.loads(row)["epoch"] for row in rows] == [0, 1, 2]
    assert two.checkpoint is not None
    with two.checkpoint.as_directory() as folder:
        saved = loops.torch.load(os.path.join(folder, "model.pt"))
    assert saved["model"]["module.weight"].item() == pytest.approx(row(two)["weight"])


def test_ten_groups_at_once_each_meet_at_a_port_of_their_own(tmp_path: Path, loops: Any) -> None:
    grid = tune.Tuner(
        trainer(tmp_path, loops.together),
        param_space={"train_loop_config": {"first": tune.grid_search(list(range(10)))}},
    ).fit()
    assert [str(error) for error in grid.errors] == []
    assert sorted(row(found)["total"] for found in grid) == [2 * n + 1 for n in range(10)]
    assert all(row(found)["moved"] > 0 for found in grid)


def test_two_ranks_of_one_gpu_meet_over_gloo(tmp_path: Path, loops: Any) -> None:
    holdfast.init(num_gpus=1)
    half = train.ScalingConfig(
        num_workers=2, use_gpu=True, resources_per_worker={"CPU": 0.1, "GPU": 0.5}
    )
    found = trainer(
        tmp_path, loops.together, train_loop_config={"first": 0}, scaling_config=half
    ).fit()
    assert row(found)["total"] == 1


def test_where_ranks_come_and_go_no_sample_is_seen_twice_in_an_epoch(
    tmp_path: Path, loops: Any
) -> None:
    absence = {"absence_s": 2}
    run = {"failure_config": train.FailureConfig(lost_worker_absence_s=2)}
    result = trainer(
        tmp_path,
        loops.seeing,
        train_loop_config=absence,
        workers=(1, 3),
        run=run,
        keep_all_metrics=True,
    ).fit()
    lines = (Path(result.path) / "result.json").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert [size for size, _ in itertools.groupby(rows, lambda r: len(r["ranks"]))] == [3, 2, 3]
    for epoch, its_rows in itertools.groupby(rows, key=lambda row: row["epoch"]):
        # In the order of the split: what follows the 22nd is padding.
        seen = [
            number
            for row in its_rows
            for numbers in itertools.zip_longest(*(of["seen"] for of in row["ranks"].values()))
            for number in numbers
        ]
        assert sorted(seen[:22]) == list(range(22)), f"epoch {epoch}"


# -- without workers ----------------------------------------------------------------------------


def test_a_rank_that_cannot_reach_rank_0_says_so_soon(
    loops: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.train.torch.trainer._MEET_S", 0.1)
    ((port, reserved),) = set_aside(1)  # nobody listens there
    lonely = Rank(
        rank=1,
        world_size=2,
        local_rank=0,
        local_world_size=1,
        node_rank=1,
        node_count=2,
        address="127.0.0.1",
        uses_gpu=False,
        shares_gpu=False,
        meet=lambda _: f"127.0.0.1:{port}",
        gather=lambda text: [text],
    )
    with (
        pytest.raises(TuneError, match=rf"rank 1 .* cannot reach rank 0 at 127.0.0.1 port {port}"),
        TorchConfig().joined(lonely),
    ):
        raise AssertionError("there is no group")
    reserved.close()


def test_a_model_goes_through_a_torch_checkpoint(tmp_path: Path, loops: Any) -> None:
    model = loops.torch.nn.Linear(2, 1)
    whole = loops.TorchCheckpoint.from_model(model)
    assert loops.torch.equal(whole.get_model().weight, model.weight)
    state = loops.TorchCheckpoint.from_state_dict(model.state_dict())
    assert loops.torch.equal(state.get_model(loops.torch.nn.Linear(2, 1)).weight, model.weight)
    with pytest.raises(InvalidConfig, match=r"holds a state dict: give get_model"):
        state.get_model()
    path = Path(state.path)
    del state
    assert not path.exists()


def test_workers_that_are_forked_alike_draw_different_numbers_with_torch(loops: Any) -> None:
    import torch

    seeds = {1}
    for _ in range(2):
        torch.manual_seed(1)
        interpreter.reseed_libraries()
        seeds.add(torch.initial_seed())
    assert len(seeds) == 3


def test_a_loader_that_deals_out_itself_is_left_alone(tmp_path: Path, loops: Any) -> None:
    holdfast.init(local_mode=True)
    assert row(trainer(tmp_path, loops.loaders, workers=1).fit())["ok"] == 1


def test_without_torch_it_is_shown_what_to_install(run_script: Any) -> None:
    ran = run_script(
        "import sys\n"
        "sys.modules['torch'] = None\n"
        "import holdfast.train.torch as ours\n"
        "for ask in (lambda: ours.TorchTrainer(print), lambda: ours.prepare_model):\n"
        "    try: ask()\n"
        "    except Exception as error: print(type(error).__name__, error)\n"
    )
    assert ran.stdout.count("pip install 'torch>=") == 2, ran.stdout + ran.stderr


@pytest.mark.parametrize(
    ("share", "own"), [(2, [[0, 1], [2, 3]]), (0.5, [[0], [0], [1], [1]]), (0, [[], []])]
)
def test_the_gpus_of_a_rank_follow_those_of_the_one_before(share: float, own: Any) -> None:
    assert [list(gpus_of(rank, share)) for rank in range(len(own))] == own


def test_what_the_config_cannot_mean() -> None:
    with pytest.raises(InvalidConfig, match="must be 'env' or 'tcp'"):
        TorchConfig(init_method="file")


def test_a_model_with_mixed_precision_is_saved_as_the_model_that_it_is(
    tmp_path: Path, loops: Any
) -> None:
    result = trainer(tmp_path, loops.mixed, workers=1).fit()
    assert result.error is None
    assert result.checkpoint is not None
    model = loops.TorchCheckpoint(result.checkpoint.path).get_model()
    assert type(model) is loops.torch.nn.Linear
    assert model.weight.item() == pytest.approx(row(result)["weight"])
    assert not {"forward", "__getstate__"} & vars(model).keys()


def test_the_processes_of_a_data_loader_report_and_end_nothing(tmp_path: Path, loops: Any) -> None:
    """The trial's process forks them; a fixture checks after each test that none is left."""
    space = {
        "persistent": tune.grid_search([False, True]),
        "whole": tune.grid_search([True, False]),
    }
    run = tune.RunConfig(storage_path=str(tmp_path / "results"), name="run", verbose=0)
    results = tune.Tuner(loops.with_loading_processes, param_space=space, run_config=run).fit()
    assert len(results) == 4
    for result in results:
        assert result.config is not None
        if result.config["whole"]:
            assert result.error is None
            lines = (Path(result.path) / "result.json").read_text().splitlines()
            rows = [json.loads(line) for line in lines]
            assert [(row["epoch"], row["batches"]) for row in rows] == [(n, 24) for n in range(3)]
        else:
            assert "sample 7 is broken" in str(result.error)


@pytest.mark.parametrize(("way", "total"), [("destroys", 1), ("replaces", 2)])
def test_a_group_that_the_script_has_destroyed_or_replaced_fails_nothing(
    tmp_path: Path, loops: Any, way: str, total: int
) -> None:
    done = trainer(tmp_path, loops.leaving, train_loop_config={"way": way}).fit()
    assert row(done)["total"] == total


@pytest.mark.parametrize("destroys", [True, False])
def test_a_script_made_for_torchrun_joins_its_ranks_itself(
    tmp_path: Path, loops: Any, destroys: bool
) -> None:
    left = TorchConfig(init_process_group=False)
    config = {"destroys": destroys}
    loop = loops.made_for_torchrun
    done = trainer(tmp_path, loop, train_loop_config=config, torch_config=left).fit()
    assert (row(done)["total"], row(done)["launched"]) == (2, True)


@pytest.mark.parametrize("kind", [TorchTrainer, train.DataParallelTrainer])
def test_a_script_that_joins_its_ranks_itself_is_shown_the_option(
    tmp_path: Path, loops: Any, kind: Any
) -> None:
    run = train.RunConfig(storage_path=str(tmp_path), verbose=0)
    scaling = train.ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.1})
    made = kind(loops.joining_itself, scaling_config=scaling, run_config=run)
    with pytest.raises(TuneError, match=r"TorchConfig\(init_process_group=False\)"):
        made.fit()
