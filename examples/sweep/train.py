"""A training script that knows nothing of holdfast but two lines: where it resumes, and its report.

`holdfast run examples/sweep/sweep.yaml` runs it; `python train.py --lr 0.1` works without.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--momentum", type=float, default=0.0)
    parser.add_argument("--epochs", type=int, default=30)
    given = parser.parse_args()
    checkpoints = Path(os.environ.get("HOLDFAST_CHECKPOINT_DIR", "."))
    epoch, weight, speed = 0, 5.0, 0.0
    if resumed := os.environ.get("HOLDFAST_RESUME_DIR"):
        epoch, weight, speed = json.loads((Path(resumed) / "state.json").read_text())
    while epoch < given.epochs:
        epoch += 1
        speed = given.momentum * speed - given.lr * 2 * (weight - 1)
        weight += speed
        folder = checkpoints / f"epoch-{epoch}"
        folder.mkdir(exist_ok=True)
        (folder / "state.json").write_text(json.dumps([epoch, weight, speed]))
        row = {"loss": (weight - 1) ** 2, "epoch": epoch, "checkpoint": folder.name}
        print("holdfast:", json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
