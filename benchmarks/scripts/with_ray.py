"""What holdfast and Ray are compared in: `with_ray.py WORK STORAGE SETTINGS`.

It has Ray's names only: `python with_ray.py` runs it on Ray, `holdfast ray with_ray.py` on
holdfast. Trials and the script send lines of JSON to the Unix socket in MEETING.
"""

from __future__ import annotations

import json
import os
import random
import socket
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

ray: Any = import_module("ray")
tune: Any = import_module("ray.tune")
MIB = 1 << 20


def tell(**told: Any) -> socket.socket:
    """Send this, with the time. Returns the connection, which a trial can wait for."""
    line = {"pid": os.getpid(), "at_s": time.monotonic(), **told}
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(os.environ["MEETING"])
    sock.sendall(json.dumps(line).encode() + b"\n")
    return sock


def once(_: dict[str, Any]) -> None:
    tune.report({"loss": 0.5})
    tell().close()


def reporting(config: dict[str, Any]) -> None:
    for step in range(20):
        tune.report({"loss": 0.5 * step, "acc": 0.25})
    began_s = time.monotonic()
    for step in range(config["count"]):
        tune.report({"loss": 0.5 * step, "acc": 0.25})
    tell(began_s=began_s).close()


def learning(config: dict[str, Any]) -> None:
    for epoch in range(1, config["epochs"] + 1):
        tune.report({"loss": (config["lr"] - 0.3) ** 2 + 1 / epoch})


def saving(config: dict[str, Any]) -> None:
    source = Path(config["source"])
    source.mkdir()
    (source / "model.bin").write_bytes(os.urandom(config["mib"] * MIB))
    tune.report({"loss": 1.0})
    took_s = []
    for _ in range(config["count"]):
        began_s = time.monotonic()
        tune.report({"loss": 0.5}, checkpoint=tune.Checkpoint.from_directory(str(source)))
        took_s.append(time.monotonic() - began_s)
    tell(took_s=took_s).close()


def waiting(config: dict[str, Any]) -> None:
    """Report once a pause, until the other side ends the connection."""
    tune.report({"loss": 0.5})
    with tell() as held:
        held.settimeout(config["pause_s"])
        while True:
            try:
                held.recv(1)
                return
            except TimeoutError:
                tune.report({"loss": 0.5})


def failing(config: dict[str, Any]) -> None:
    """Two percent fail until the file exists; then they tell that they run again."""
    is_repaired = Path(config["repaired"]).exists()
    if config["number"] % 50 == 0 and not is_repaired:
        raise RuntimeError("planned")
    tune.report({"loss": 0.5})
    if is_repaired:
        tell().close()


TRAINABLES = {trained.__name__: trained for trained in (once, reporting, saving, waiting)}


def tuner(trainable: Any, config: dict[str, Any], *, failures: int = 0, **more: Any) -> Any:
    return tune.Tuner(
        trainable,
        param_space=config,
        tune_config=tune.TuneConfig(**more),
        run_config=tune.RunConfig(
            name="compared",
            storage_path=storage,
            verbose=0,
            failure_config=tune.FailureConfig(max_failures=failures),
        ),
    )


def asha(trials: int, config: dict[str, Any]) -> None:
    schedulers: Any = import_module("ray.tune.schedulers")
    # The same configurations in the same order for both.
    rates = [random.Random(number).random() for number in range(trials)]
    scheduler = schedulers.ASHAScheduler(max_t=config["epochs"], reduction_factor=4)
    made = tuner(
        learning,
        {**config, "lr": tune.grid_search(rates)},
        metric="loss",
        mode="min",
        scheduler=scheduler,
        reuse_actors=True,
    )
    began_s = time.monotonic()
    made.fit()
    tell(fit_s=time.monotonic() - began_s).close()


def main() -> None:
    # The object store, the dashboard and the address mean something to Ray only.
    ray.init(
        num_cpus=settings["cpus"],
        object_store_memory=200_000_000,
        include_dashboard=False,
        log_to_driver=False,
        _node_ip_address="127.0.0.2",
    )
    config, trials = settings["config"], settings["trials"]
    match work:
        case "asha":
            asha(trials, config)
        case "prepare":
            numbers = tune.grid_search(list(range(trials)))
            tuner(failing, {**config, "number": numbers}, reuse_actors=True).fit()
        case "restore":
            path = str(Path(storage, "compared"))
            tune.Tuner.restore(path, failing, resume_errored=True).fit()
        case _:
            reuse = {"reuse_actors": True} if settings["reuse"] else {}
            more = {"num_samples": trials, "failures": settings["failures"], **reuse}
            tuner(TRAINABLES[work], config, **more).fit()
    ray.shutdown()


if __name__ == "__main__":
    work, storage = sys.argv[1:3]
    settings: dict[str, Any] = json.loads(sys.argv[3])
    main()
