"""How long ranks wait for each other: `rank_reports.py STORAGE WHAT SOURCE COUNT`.

WHAT is `reports` (COUNT of them, each answered), `checkpoint` (one, of SOURCE/<rank> from each
rank) or `killed` (rank 1 kills itself after a checkpoint, once; `killed-in-torch` does so in a
torch process group). Writes a file for each rank, or for each moment, to STORAGE: a monotonic time
in each line.
"""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from holdfast import train

storage, what, source, count = sys.argv[1:]
WARM = 20
SETTLED_S = 2


def loop(config: dict[str, Any]) -> None:
    rank = train.get_context().get_world_rank()
    out = Path(config["out"], f"rank-{rank}")
    if config["what"] == "reports":
        for _ in range(WARM):
            train.report({"loss": 0.5})
        began_s = time.monotonic()
        for _ in range(config["count"]):
            train.report({"loss": 0.5})
        out.write_text(f"{began_s!r}\n{time.monotonic()!r}\n")
    elif config["what"] == "checkpoint":
        # By now everything that starts with a run has started, and leaves both processors to the
        # ranks.
        time.sleep(SETTLED_S)
        train.report({"loss": 0.5})
        began_s = time.monotonic()
        checkpoint = train.Checkpoint.from_directory(f"{config['source']}/{rank}")
        train.report({"loss": 0.5}, checkpoint=checkpoint)
        out.write_text(f"{began_s!r}\n{time.monotonic()!r}\n")
    else:
        Path(config["out"], f"step-{train.get_context().get_attempt()}-{rank}").write_text(
            f"{time.monotonic()!r}\n"
        )
        folder = Path(train.staging_directory())
        (folder / f"of-{rank}").write_text("x")
        train.report({"loss": 0.5}, checkpoint=train.Checkpoint.from_directory(folder))
        if rank == 1 and train.get_context().get_attempt() == 1:
            Path(config["out"], "killed").write_text(f"{time.monotonic()!r}\n")
            os.kill(os.getpid(), signal.SIGKILL)
        train.report({"loss": 0.5})


if __name__ == "__main__":
    kind: Any = train.DataParallelTrainer
    if what == "killed-in-torch":
        from holdfast.train.torch import TorchTrainer as kind
    kind(
        loop,
        train_loop_config={"out": storage, "what": what, "source": source, "count": int(count)},
        scaling_config=train.ScalingConfig(num_workers=4, resources_per_worker={"CPU": 0.25}),
        run_config=train.RunConfig(
            storage_path=storage,
            verbose=0,
            failure_config=train.FailureConfig(max_failures=1),
        ),
    ).fit()
