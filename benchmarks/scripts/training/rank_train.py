"""A small training on several ranks: `rank_train.py LIBRARY STORAGE RANKS EPOCHS STEPS WIDTH`.

LIBRARY is holdfast, ray, or torch: then torchrun starts this script in each rank. After each epoch
rank 0 saves the model. Writes the files `fit` and `step` to STORAGE: the monotonic times of the
call of `fit()` and of the first step.
"""

import os
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any

library, storage, *numbers = sys.argv[1:]
ranks, epochs, steps, width = map(int, numbers)
CONFIG = {"epochs": epochs, "steps": steps, "width": width, "storage": storage, "of": library}


def loop(config: dict[str, Any]) -> None:
    import torch

    rank = int(os.environ["RANK"])
    torch.manual_seed(rank)
    layers = [torch.nn.Linear(config["width"], config["width"]) for _ in range(4)]
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for epoch in range(config["epochs"]):
        for _ in range(config["steps"]):
            optimizer.zero_grad()
            loss = model(torch.randn(64, config["width"])).square().mean()
            loss.backward()
            optimizer.step()
            if rank == 0 and not os.path.exists(f"{config['storage']}/step"):
                Path(config["storage"], "step").write_text(repr(time.monotonic()))
        save(config, epoch, model.state_dict() if rank == 0 else None, loss.item())


def save(config: dict[str, Any], epoch: int, state: Any, loss: float) -> None:
    import torch

    if config["of"] == "torch":
        if state is not None:
            folder = Path(config["storage"], f"checkpoint_{epoch:06d}")
            folder.mkdir()
            torch.save(state, folder / "model.pt")
        return
    train: Any = import_module(f"{config['of']}.train")
    with tempfile.TemporaryDirectory() as folder_name:
        checkpoint = None
        if state is not None:
            torch.save(state, os.path.join(folder_name, "model.pt"))
            checkpoint = train.Checkpoint.from_directory(folder_name)
        train.report({"loss": loss}, checkpoint=checkpoint)


def main() -> None:
    if library == "torch":
        import torch.distributed as dist

        dist.init_process_group("gloo")
        loop(CONFIG)
        dist.destroy_process_group()
        return
    train: Any = import_module(f"{library}.train")
    torch_side: Any = import_module(f"{library}.train.torch")
    trainer = torch_side.TorchTrainer(
        loop,
        train_loop_config=CONFIG,
        scaling_config=train.ScalingConfig(
            num_workers=ranks, resources_per_worker={"CPU": 0.25}, trainer_resources={"CPU": 0}
        ),
        run_config=train.RunConfig(storage_path=storage, verbose=0),
    )
    Path(storage, "fit").write_text(repr(time.monotonic()))
    trainer.fit()


if __name__ == "__main__":
    main()
