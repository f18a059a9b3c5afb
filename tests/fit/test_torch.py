"""Real torch process groups on the ranks of one trial, over gloo on loopback."""

from __future__ import annotations

import copy
import itertools
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, TensorDataset

import holdfast
from holdfast import train, tune
from holdfast.experiment.worker.torch_devices import gpus_of
from holdfast.train.torch import (
    DealingSampler,
    TorchCheckpoint,
    TorchConfig,
    TorchTrainer,
    accelerate,
    backward,
    enable_reproducibility,
    get_device,
    prepare_data_loader,
    prepare_model,
    prepare_optimizer,
)
from holdfast.trial.errors import InvalidConfig

pytestmark = pytest.mark.process

SAMPLES = 48


def trainer(tmp_path: Path, loop: Any, **more: Any) -> TorchTrainer:
    workers = more.pop("workers", 2)
    run = {"storage_path": str(tmp_path / "results"), "name": "run", "verbose": 0}
    return TorchTrainer(
        loop,
        scaling_config=train.ScalingConfig(num_workers=workers, resources_per_worker={"CPU": 0.1}),
        run_config=train.RunConfig(**{**run, **more.pop("run", {})}),
        **more,
    )


def row(result: train.Result) -> dict[str, Any]:
    assert result.metrics is not None
    return dict(result.metrics)


def data() -> TensorDataset:
    inputs = torch.arange(SAMPLES, dtype=torch.float32).reshape(-1, 1) / SAMPLES
    return TensorDataset(inputs, 3 * inputs - 1)


def regression(config: dict[str, Any]) -> None:
    """Fits a line in three epochs; batches of 12 in all, whatever the number of ranks."""
    context = train.get_context()
    enable_reproducibility(1)
    model = prepare_model(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    batch = 12 // context.get_world_size()
    loader = prepare_data_loader(DataLoader(data(), batch_size=batch, shuffle=True))
    begun = train.get_checkpoint()
    first = 0
    if begun is not None:
        with begun.as_directory() as folder:
            saved = torch.load(os.path.join(folder, "model.pt"))
        model.load_state_dict(saved["model"])
        first = saved["epoch"] + 1
    for epoch in range(first, 3):
        loader.sampler.set_epoch(epoch)
        for inputs, wanted in loader:
            loss = torch.nn.functional.mse_loss(model(inputs.to(get_device())), wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if config.get("dies") and (context.get_attempt(), epoch, dist.get_rank()) == (1, 1, 1):
            os.kill(os.getpid(), signal.SIGKILL)
        checkpoint = None
        if context.get_world_rank() == 0:
            saved = {"model": model.state_dict(), "epoch": epoch}
            torch.save(saved, os.path.join(staged := train.staging_directory(), "model.pt"))
            checkpoint = train.Checkpoint.from_directory(staged)
        bare = model.module if hasattr(model, "module") else model
        metrics = {"weight": bare.weight.item(), "bias": bare.bias.item(), "epoch": epoch}
        train.report(metrics, checkpoint=checkpoint)


def line(result: train.Result) -> tuple[float, float]:
    return row(result)["weight"], row(result)["bias"]


def plain_regression() -> tuple[float, float]:
    """The same line without holdfast, except for the order of the samples."""
    torch.manual_seed(1)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    sampler = DealingSampler(data(), rank=0, ranks=1, shuffle=True)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for inputs, wanted in DataLoader(data(), batch_size=12, sampler=sampler):
            loss = torch.nn.functional.mse_loss(model(inputs), wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model.weight.item(), model.bias.item()


def test_two_ranks_learn_what_one_learns_also_when_one_is_killed(tmp_path: Path) -> None:
    failure = train.FailureConfig(max_failures=1)
    run = {"name": "two", "failure_config": failure}
    two = trainer(tmp_path, regression, train_loop_config={"dies": True}, run=run).fit()
    assert line(two) == pytest.approx(plain_regression(), rel=1e-5)
    rows = (Path(two.path) / "result.json").read_text().splitlines()
    assert [json.loads(row)["epoch"] for row in rows] == [0, 1, 2]
    assert two.checkpoint is not None
    with two.checkpoint.as_directory() as folder:
        saved = torch.load(os.path.join(folder, "model.pt"))
    assert saved["model"]["module.weight"].item() == pytest.approx(row(two)["weight"])


def together(config: dict[str, Any]) -> None:
    """Mixed precision, and variables that libraries look for."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    assert (os.environ["RANK"], os.environ["WORLD_SIZE"]) == (str(rank), str(ranks))
    assert dist.get_backend() == "gloo"
    total = torch.tensor([rank + config["first"]])
    dist.all_reduce(total)
    accelerate(amp=True)
    model = prepare_model(torch.nn.Linear(1, 1))
    optimizer = prepare_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    out = model(torch.ones(4, 1))
    assert out.dtype is torch.float32
    backward(out.sum())
    before = [part.clone() for part in model.parameters()]
    optimizer.step()
    moved = sum(
        float((a - b).abs().sum()) for a, b in zip(before, model.parameters(), strict=True)
    )
    train.report({"total": total.item(), "moved": moved, "port": os.environ["MASTER_PORT"]})


def test_ten_groups_at_once_each_meet_at_a_port_of_their_own(tmp_path: Path) -> None:
    grid = tune.Tuner(
        trainer(tmp_path, together),
        param_space={"train_loop_config": {"first": tune.grid_search(list(range(10)))}},
    ).fit()
    assert [str(error) for error in grid.errors] == []
    assert sorted(row(found)["total"] for found in grid) == [2 * n + 1 for n in range(10)]
    assert all(row(found)["moved"] > 0 for found in grid)


def seeing(config: dict[str, Any]) -> None:
    """Two epochs in batches of 2, saved after each; reports which samples each rank got."""
    context = train.get_context()
    numbers = TensorDataset(torch.arange(22))
    loader = prepare_data_loader(DataLoader(numbers, batch_size=2, shuffle=True, num_workers=1))
    first = 0
    if begun := train.get_checkpoint():
        with begun.as_directory() as folder:
            saved = json.loads(Path(folder, "loader").read_text())
        loader.load_state_dict(saved)
        first = saved["epoch"]
    steps = 0
    for epoch in range(first, 2):
        loader.sampler.set_epoch(epoch)
        for (batch,) in loader:
            steps += 1
            if (context.get_attempt(), epoch) == (2, 1):
                # Until the lost rank may have returned.
                time.sleep(max(0.0, Path(config["killed"]).stat().st_mtime + 3 - time.time()))
            if (context.get_attempt(), context.get_world_rank(), steps) == (1, 1, 2):
                Path(config["killed"]).touch()
                os.kill(os.getpid(), signal.SIGKILL)
            staged = train.staging_directory()
            Path(staged, "loader").write_text(json.dumps(loader.state_dict()))
            checkpoint = train.Checkpoint.from_directory(staged)
            metrics = {"epoch": epoch, "seen": batch.tolist()}
            is_first = context.get_world_rank() == 0
            train.report(metrics, checkpoint=checkpoint if is_first else None)


def test_where_ranks_come_and_go_no_sample_is_seen_twice_in_an_epoch(tmp_path: Path) -> None:
    failure = train.FailureConfig(lost_worker_absence_s=2)
    run = {"failure_config": failure}
    killed = {"killed": str(tmp_path / "killed")}
    result = trainer(
        tmp_path,
        seeing,
        train_loop_config=killed,
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


def test_a_model_goes_through_a_torch_checkpoint(tmp_path: Path) -> None:
    model = torch.nn.Linear(2, 1)
    whole = TorchCheckpoint.from_model(model)
    assert torch.equal(whole.get_model().weight, model.weight)
    state = TorchCheckpoint.from_state_dict(model.state_dict())
    assert torch.equal(state.get_model(torch.nn.Linear(2, 1)).weight, model.weight)
    with pytest.raises(InvalidConfig, match=r"holds a state dict: give get_model"):
        state.get_model()
    path = Path(state.path)
    del state
    assert not path.exists()


def loaders(config: dict[str, Any]) -> None:
    numbers = TensorDataset(torch.arange(4))
    shared = DataLoader(numbers, sampler=DistributedSampler(numbers, 1, 0))
    assert prepare_data_loader(shared) is shared
    plain = DataLoader(numbers)
    assert prepare_data_loader(plain, add_dist_sampler=False) is plain
    shared = DataLoader(numbers, batch_sampler=BatchSampler(shared.sampler, 2, drop_last=False))
    assert prepare_data_loader(shared) is shared
    batches = BatchSampler(torch.utils.data.RandomSampler(numbers), 3, drop_last=True)
    dealt = prepare_data_loader(DataLoader(numbers, batch_sampler=batches))
    assert (dealt.batch_size, dealt.drop_last, dealt.sampler.shuffle) == (3, True, True)
    assert [len(batch) for (batch,) in dealt] == [3]
    weighted = torch.utils.data.WeightedRandomSampler([1.0] * 4, 4)
    with pytest.raises(InvalidConfig, match=r"a custom sampler \(WeightedRandomSampler\)"):
        prepare_data_loader(DataLoader(numbers, sampler=weighted))
    twice = torch.utils.data.RandomSampler(numbers, replacement=True)
    with pytest.raises(InvalidConfig, match="a custom sampler"):
        prepare_data_loader(DataLoader(numbers, sampler=twice))
    with pytest.raises(InvalidConfig, match="must be 'ddp', 'fsdp' or None"):
        prepare_model(torch.nn.Linear(1, 1), parallel_strategy="deepspeed")
    train.report({"ok": 1})


def test_a_loader_that_deals_out_itself_is_left_alone(tmp_path: Path) -> None:
    holdfast.init(local_mode=True)
    assert row(trainer(tmp_path, loaders, workers=1).fit())["ok"] == 1


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
    assert "torch" in sys.modules


def mixed(config: dict[str, Any]) -> None:
    accelerate(amp=True)
    model = prepare_model(torch.nn.Linear(1, 1))
    twin = copy.deepcopy(model)
    assert model(torch.ones(1, 1)).dtype is torch.float32
    with torch.no_grad():
        twin.weight.zero_()
    assert twin(torch.zeros(1, 1)).item() == pytest.approx(model.bias.item())
    checkpoint = TorchCheckpoint.from_model(model)
    train.report({"weight": model.weight.item()}, checkpoint=checkpoint)


def test_a_model_with_mixed_precision_is_saved_as_the_model_that_it_is(tmp_path: Path) -> None:
    result = trainer(tmp_path, mixed, workers=1).fit()
    assert result.error is None
    assert result.checkpoint is not None
    model = TorchCheckpoint(result.checkpoint.path).get_model()
    assert type(model) is torch.nn.Linear
    assert model.weight.item() == pytest.approx(row(result)["weight"])
    assert not {"forward", "__getstate__"} & vars(model).keys()


class Broken:
    """Cannot load its last sample."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 7:
            raise LookupError("sample 7 is broken")
        return torch.tensor(index)


def with_loading_processes(config: dict[str, Any]) -> None:
    loader = DataLoader(
        data() if config["whole"] else Broken(),
        batch_size=2,
        num_workers=2,
        persistent_workers=config["persistent"],
    )
    for epoch in range(3):
        tune.report({"epoch": epoch, "batches": sum(1 for _ in loader)})


def test_the_processes_of_a_data_loader_report_and_end_nothing(tmp_path: Path) -> None:
    """The trial's process forks them; a fixture checks after each test that none is left."""
    space = {
        "persistent": tune.grid_search([False, True]),
        "whole": tune.grid_search([True, False]),
    }
    run = tune.RunConfig(storage_path=str(tmp_path / "results"), name="run", verbose=0)
    results = tune.Tuner(with_loading_processes, param_space=space, run_config=run).fit()
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
