"""A training script without a line of holdfast: it prints its reports, and resumes from a folder.

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
    checkpoints = os.environ.get("HOLDFAST_CHECKPOINT_DIR")
    epoch, weight, speed = 0, 5.0, 0.0
    if resumed := os.environ.get("HOLDFAST_RESUME_DIR"):
        epoch, weight, speed = json.loads((Path(resumed) / "state.json").read_text())
    while epoch < given.epochs:
        epoch += 1
        speed = given.momentum * speed - given.lr * 2 * (weight - 1)
        weight += speed
        row: dict[str, object] = {"loss": (weight - 1) ** 2, "epoch": epoch}
        if checkpoints:
            folder = Path(checkpoints) / f"epoch-{epoch}"
            folder.mkdir()
            (folder / "state.json").write_text(json.dumps([epoch, weight, speed]))
            row["checkpoint"] = folder.name
        print("holdfast:", json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
