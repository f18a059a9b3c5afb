"""A user's script on GPUs: `on_gpus.py PART FOLDER` prints facts as JSON in its last line."""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

import holdfast
from holdfast import train, tune
from holdfast.train.torch import TorchConfig, TorchTrainer, get_device, prepare_model

FOLDER = Path(sys.argv[2])
DEVICE = "cuda" if torch.cuda.device_count() else "cpu"


def computed(size: int = 2048) -> float:
    """The sum of a matrix product on the GPU."""
    matrix = torch.ones(size, size, device=DEVICE)
    return float((matrix @ matrix).sum())


def look(config: dict[str, Any]) -> None:
    tune.report(
        {
            "visible": os.environ.get("CUDA_VISIBLE_DEVICES", ""),
            "seen": torch.cuda.device_count(),
            "sum": computed(),
            "at": time.time(),
        }
    )


def share(config: dict[str, Any]) -> None:
    """Compute, and wait until all four trials have."""
    total = computed()
    (FOLDER / f"here-{config['n']}").touch()
    deadline = time.monotonic() + 60
    while len(list(FOLDER.glob("here-*"))) < 4 and time.monotonic() < deadline:
        total = computed()
    tune.report(
        {
            "here": len(list(FOLDER.glob("here-*"))),
            "visible": os.environ.get("CUDA_VISIBLE_DEVICES", ""),
            "sum": total,
            "used_mib": torch.cuda.max_memory_allocated() >> 20,
        }
    )


def fill(config: dict[str, Any]) -> None:
    if config["n"]:
        parts = [torch.ones(1 << 30, device=DEVICE) for _ in range(100)]  # 400 GB
        tune.report({"sum": float(parts[-1].sum())})
    else:
        tune.report({"sum": computed()})


def save(model: torch.nn.Module, epoch: int) -> train.Checkpoint:
    folder = tempfile.mkdtemp()
    torch.save({"model": model.state_dict(), "epoch": epoch}, os.path.join(folder, "model.pt"))
    return train.Checkpoint.from_directory(folder)


def loaded(model: torch.nn.Module) -> int:
    """Load the newest checkpoint. Returns the next epoch."""
    checkpoint = train.get_checkpoint()
    if checkpoint is None:
        return 0
    with checkpoint.as_directory() as folder:
        saved = torch.load(os.path.join(folder, "model.pt"), map_location=DEVICE)
    model.load_state_dict(saved["model"])
    return int(saved["epoch"]) + 1


def learn(config: dict[str, Any]) -> None:
    """Four epochs of a model on all ranks; the first attempt fails in the third."""
    device = get_device()
    model = prepare_model(torch.nn.Linear(64, 1))
    first = loaded(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    context = train.get_context()
    for epoch in range(first, 4):
        if epoch == 2 and not first and config["fails"]:
            raise RuntimeError("the first attempt fails")
        inputs = torch.randn(256, 64, device=device)
        loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ones = torch.ones(1, device=device)
        torch.distributed.all_reduce(ones)
        facts = {
            "loss": loss.item(),
            "epoch": epoch,
            "first": first,
            "sum": ones.item(),
            "world": context.get_world_size(),
            "backend": torch.distributed.get_backend(),
            "device": str(device),
        }
        rank = context.get_world_rank()
        train.report(facts, checkpoint=None if rank else save(model, epoch))


def last(config: dict[str, Any]) -> None:
    """Epochs until the test lets it end."""
    model = torch.nn.Linear(4096, 4096).to(DEVICE)
    first = loaded(model)
    deadline = time.monotonic() + 120
    for epoch in range(first, 1000):
        loss = model(torch.ones(64, 4096, device=DEVICE)).square().mean()
        loss.backward()
        tune.report({"epoch": epoch, "first": first}, checkpoint=save(model, epoch))
        if epoch == 3:
            os.write(os.open(FOLDER / "training", os.O_RDWR), b"!")  # a FIFO
        if epoch >= 5:
            while not (FOLDER / "may-end").exists() and time.monotonic() < deadline:
                computed()
            return


def fit(trainable: Any, gpu: float, samples: int = 2, **more: Any) -> tune.ResultGrid:
    return tune.Tuner(
        tune.with_resources(trainable, {"cpu": 1, "gpu": gpu}),
        param_space={"n": tune.grid_search(list(range(samples)))},
        run_config=tune.RunConfig(storage_path=str(FOLDER / "results"), name="run", verbose=0),
        **more,
    ).fit()


def column(grid: tune.ResultGrid, name: str) -> list[Any]:
    return [(result.metrics or {})[name] for result in grid]


# Modules of users do this while they are imported. CUDA does not work in a fork of a process that
# has done it.
EARLY = """
import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
{line}


def look(config):
    from holdfast import tune

    seen = torch.cuda.device_count()
    tune.report({"visible": "", "seen": seen, "sum": float(torch.ones(9, device=DEVICE).sum())})
"""


def early(line: str) -> dict[str, Any]:
    """A trainable of a module that has used CUDA while it was imported."""
    (FOLDER / "early.py").write_text(EARLY.replace("{line}", line))
    sys.path.insert(0, str(FOLDER))
    grid = fit(importlib.import_module("early").look, 1)
    return {"seen": column(grid, "seen"), "sum": column(grid, "sum")}


def asked_at_import() -> dict[str, Any]:
    return early("")


def computed_at_import() -> dict[str, Any]:
    return early("ONE = torch.ones(1, device=DEVICE)")


def counted() -> dict[str, Any]:
    from holdfast.experiment.control.machine_resources import host_resources

    known = host_resources()
    grid = fit(look, 1)
    return {
        "detected": known.total.get("GPU", 0),
        "names": list(known.gpu_names),
        "visible": column(grid, "visible"),
        "seen": column(grid, "seen"),
    }


def fractions() -> dict[str, Any]:
    grid = fit(share, 0.25, 4)
    return {
        "at_once": min(column(grid, "here")),
        "visible": column(grid, "visible"),
        "used_mib": column(grid, "used_mib"),
    }


def rank_facts(trainer: TorchTrainer) -> dict[str, Any]:
    result = trainer.fit()
    rows = [
        json.loads(line) for line in (Path(result.path) / "result.json").read_text().splitlines()
    ]
    facts = {name: rows[-1][name] for name in ("sum", "world", "backend", "device")}
    return {
        **facts,
        "epochs": [row["epoch"] for row in rows],
        "resumed_at": rows[-1]["first"],
    }


def trainer(scaling: train.ScalingConfig, name: str = "ranks", **more: Any) -> TorchTrainer:
    return TorchTrainer(
        learn,
        train_loop_config={"fails": True},
        scaling_config=scaling,
        run_config=train.RunConfig(
            storage_path=str(FOLDER / "results"),
            name=name,
            verbose=0,
            failure_config=train.FailureConfig(max_failures=1),
        ),
        **more,
    )


def ranks() -> dict[str, Any]:
    world = max(1, torch.cuda.device_count())
    return rank_facts(trainer(train.ScalingConfig(num_workers=world, use_gpu=DEVICE == "cuda")))


def ranks_of_one_gpu() -> dict[str, Any]:
    half = {"CPU": 1, "GPU": 0.5}
    scaling = train.ScalingConfig(num_workers=2, use_gpu=True, resources_per_worker=half)
    facts = rank_facts(trainer(scaling))
    over_nccl = trainer(scaling, torch_config=TorchConfig(backend="nccl"), name="nccl")
    try:
        over_nccl.fit()
        nccl = "works"
    except train.TrainingFailedError as error:  # a fact of this check, too
        nccl = str(error)
    return {**facts, "nccl": next((text for text in nccl.splitlines() if "GPU" in text), nccl)}


def lightning() -> dict[str, Any]:
    import lightning.pytorch as pl
    from lightning.pytorch.demos.boring_classes import BoringModel, RandomDataset

    from holdfast.train.lightning import (
        RayDDPStrategy,
        RayLightningEnvironment,
        RayTrainReportCallback,
        prepare_trainer,
    )

    def loop(config: dict[str, Any]) -> None:
        pl_trainer = prepare_trainer(
            pl.Trainer(
                max_epochs=2,
                devices="auto",
                accelerator="auto",
                strategy=RayDDPStrategy(),
                plugins=[RayLightningEnvironment()],
                callbacks=[RayTrainReportCallback()],
                enable_progress_bar=False,
                enable_checkpointing=False,
                logger=False,
            )
        )
        pl_trainer.fit(BoringModel(), torch.utils.data.DataLoader(RandomDataset(32, 64)))
        (FOLDER / "used_bytes").write_text(str(torch.cuda.max_memory_allocated()))

    TorchTrainer(
        loop,
        scaling_config=train.ScalingConfig(num_workers=1, use_gpu=DEVICE == "cuda"),
        run_config=train.RunConfig(
            storage_path=str(FOLDER / "results"), name="lightning", verbose=0
        ),
    ).fit()
    return {"used_bytes": int((FOLDER / "used_bytes").read_text())}


def out_of_memory() -> dict[str, Any]:
    grid = fit(fill, 0.5)
    return {
        "errors": grid.num_errors,
        "finished": grid.num_terminated,
        "error": str(grid.errors[0])[:1000],
    }


def long() -> dict[str, Any]:
    tuner = tune.Tuner(
        tune.with_resources(last, {"cpu": 1, "gpu": 1 if DEVICE == "cuda" else 0}),
        run_config=tune.RunConfig(storage_path=str(FOLDER / "results"), name="run", verbose=0),
    )
    (result,) = tuner.fit(resume="auto")
    rows = [
        json.loads(line) for line in (Path(result.path) / "result.json").read_text().splitlines()
    ]
    return {"epochs": [row["epoch"] for row in rows], "resumed_at": rows[-1]["first"]}


def started() -> dict[str, Any]:
    grid = fit(look, 1)
    began = process_start()
    first, second = sorted(column(grid, "at"))
    return {"first_s": round(first - began, 2), "second_s": round(second - began, 2)}


def plain() -> dict[str, Any]:
    computed()
    return {"first_s": round(time.time() - process_start(), 2)}


def process_start() -> float:
    """When this process was started, in seconds since 1970."""
    import psutil

    return psutil.Process().create_time()


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    facts = globals()[sys.argv[1]]()
    holdfast.shutdown()
    print(json.dumps(facts))
