"""A user's script: it starts an experiment or resumes it.

The options are one JSON object on the command line. Each epoch notes that it ran and that it was
acknowledged, marks its progress and waits at a gate with its name, so that a test decides what
happens when; it takes `epoch_s` seconds. With `ranks`, this many workers train each trial
together, with `rank_cpus` each, and the first of them does all this; each saves its own file.
With `children`, a method of multiprocessing, each of them has a child that never ends by itself.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from holdfast import tune
from holdfast.runtime import process_control
from holdfast.train import DataParallelTrainer, ScalingConfig
from holdfast.tune.search import BasicVariantGenerator
from tests.rig.script import mark, note, wait_at

OPTIONS: dict[str, Any] = json.loads(sys.argv[1])
BEHAVIOUR = (
    "epochs",
    "checkpoint_every",
    "checkpoint_bytes",
    "fail",
    "failing",
    "ignore_stop",
    "saves_at_the_end",
    "artifacts",
    "padding",
    "tell_length_of",
    "prints",
    "epoch_s",
    "upload_mode",
    "children",
    "outside",
)
SPACE = {"lr": tune.loguniform(1e-4, 1e-1), "kind": tune.grid_search(["a", "b"])}


def start_of(checkpoint: tune.Checkpoint | None) -> int:
    if checkpoint is None:
        return 1
    with checkpoint.as_directory() as folder:
        return int(json.loads(Path(folder, "epoch.json").read_text())["epoch"]) + 1


def make_trainable(options: dict[str, Any]) -> Any:
    def train(config: dict[str, Any]) -> None:
        context = tune.get_context()
        trial, attempt = context.get_trial_id(), context.get_attempt()
        index = int(trial.rpartition("_")[2])
        if "children" in options:
            start_child(options["children"])
        if context.get_world_size() > 1:
            mark("rank", context.get_world_rank(), attempt, socket.gethostname())
        if context.get_world_rank() > 0:
            follow(context.get_world_rank(), options)
            return
        if options.get("ignore_stop"):
            signal.signal(process_control.STOP, lambda *_: mark("asked to stop", index))
        if "tell_length_of" in options:
            mark("length", len(os.environ[options["tell_length_of"]]))
        mark("begun", index, attempt)
        if options.get("saves_at_the_end"):
            tell_of_preemption(index)
        for epoch in range(start_of(tune.get_checkpoint()), options["epochs"] + 1):
            note(what="ran", trial=trial, attempt=attempt, iteration=epoch)
            mark("at", index, epoch)
            wait_at(f"{index}-{epoch}")
            wait_at(f"any-{epoch}")
            threading.Event().wait(options.get("epoch_s", 0))
            if [index, epoch] in options.get("fail", []) and attempt <= options.get("failing", 1):
                raise RuntimeError(f"trial {index} cannot do epoch {epoch}")
            if options.get("artifacts"):
                Path("artifact.txt").write_text(f"epoch {epoch}")
            if options.get("prints"):
                print(f"epoch {epoch} of attempt {attempt}", flush=True)
            report(config, trial, attempt, epoch)
            mark("reported", index, epoch)

    def report(config: dict[str, Any], trial: str, attempt: int, epoch: int) -> None:
        row = {"epoch": epoch, "loss": config["lr"] / epoch, "attempt": attempt}
        if "padding" in options:
            row["padding"] = "x" * options["padding"]
        saves = epoch % options.get("checkpoint_every", 1) == 0
        if options.get("saves_at_the_end") and tune.get_context().preemption_requested():
            saves = True
        if not saves:
            tune.report(row)
        else:
            with place_for(f"{trial}-{attempt}-{epoch}", epoch, options) as folder:
                Path(folder, "epoch.json").write_text(json.dumps({"epoch": epoch}))
                size = options.get("checkpoint_bytes", 100)
                Path(folder, "weights").write_bytes(bytes([epoch % 256]) * size)
                if options.get("outside"):
                    note(what="written", path=os.path.realpath(folder), epoch=epoch, size=size)
                tune.report(
                    row,
                    checkpoint=tune.Checkpoint.from_directory(folder),
                    checkpoint_upload_mode=options.get("upload_mode", "ASYNC"),
                )
        note(what="acknowledged", trial=trial, attempt=attempt, iteration=epoch, checkpoint=saves)

    return train


def start_child(method: str) -> None:
    """Start a child that has to import this script before it works."""
    context = multiprocessing.get_context(method)
    ours, theirs = context.Pipe()
    context.Process(target=live_on, args=(theirs,), daemon=True).start()  # type: ignore[attr-defined]
    theirs.close()
    assert ours.recv() == start_of(None)


def live_on(pipe: Any) -> None:
    pipe.send(start_of(None))
    threading.Event().wait()


@contextmanager
def place_for(name: str, epoch: int, options: dict[str, Any]) -> Iterator[str]:
    """A folder for a checkpoint: a temporary one, or with `outside`, in every second epoch, one of
    the user's there, through a link in a staging directory."""
    outside = options.get("outside")
    if outside is None or epoch % 2:
        with tempfile.TemporaryDirectory() as folder:
            yield folder
        return
    Path(outside, name).mkdir(parents=True, exist_ok=True)
    link = Path(tune.staging_directory(), "outside")
    link.symlink_to(outside)
    yield str(link / name)
    link.unlink()
    link.parent.rmdir()


def tell_of_preemption(index: int) -> None:
    """Mark it once user code can see that it is preempted."""
    known = signal.getsignal(signal.SIGTERM)

    def handle(signum: int, frame: FrameType | None) -> None:
        assert callable(known)
        known(signum, frame)
        mark("preempted", index)

    signal.signal(signal.SIGTERM, handle)


def follow(rank: int, options: dict[str, Any]) -> None:
    """The other ranks: save whenever the first one does."""
    for epoch in range(start_of(tune.get_checkpoint()), options["epochs"] + 1):
        if epoch % options.get("checkpoint_every", 1):
            tune.report({"epoch": epoch})
            continue
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, f"weights-{rank}").write_bytes(bytes([epoch]) * 100)
            checkpoint = tune.Checkpoint.from_directory(folder)
            mode = options.get("upload_mode", "ASYNC")
            tune.report({"epoch": epoch}, checkpoint=checkpoint, checkpoint_upload_mode=mode)


def run_config(options: dict[str, Any]) -> tune.RunConfig:
    return tune.RunConfig(
        storage_path=options["storage"],
        name=options.get("name", "run"),
        verbose=options.get("verbose", 1),
        failure_config=tune.FailureConfig(
            max_failures=options.get("max_failures", 0),
            preemption_grace_s=options.get("preemption_grace_s", 5),
        ),
        checkpoint_config=tune.CheckpointConfig(num_to_keep=options.get("num_to_keep")),
        sync_config=tune.SyncConfig(
            sync_period=options.get("sync_period", 0.2),
            sync_timeout=options.get("sync_timeout", 1800),
            sync_artifacts=options.get("sync_artifacts", False),
        ),
    )


def experiment_path(options: dict[str, Any]) -> str:
    base, mark_, query = options["storage"].partition("?")
    return f"{base.rstrip('/')}/{options.get('name', 'run')}{mark_}{query}"


def make_tuner(options: dict[str, Any]) -> tune.Tuner:
    behaviour = {name: options[name] for name in BEHAVIOUR if name in options}
    trainable, space = make_trainable(behaviour), SPACE
    if ranks := options.get("ranks"):
        cpus = options.get("rank_cpus", 1 / ranks)
        each = ScalingConfig(num_workers=ranks, resources_per_worker={"CPU": cpus})
        trainable = DataParallelTrainer(trainable, scaling_config=each)
        space = {"train_loop_config": SPACE}
    if options.get("go_on") and tune.Tuner.can_restore(experiment_path(options)):
        wishes = options.get("wishes", {})
        return tune.Tuner.restore(experiment_path(options), trainable, **wishes)
    if "restore" in options:
        given = {"trainable": trainable} if options.get("give", True) else {}
        if options.get("give_space"):
            given["param_space"] = space
        path = options.get("path") or experiment_path(options)
        return tune.Tuner.restore(path, **given, **options["restore"])
    return tune.Tuner(
        trainable,
        param_space=space,
        tune_config=tune.TuneConfig(
            metric="loss",
            mode="min",
            num_samples=options.get("samples", 1),
            max_concurrent_trials=options.get("at_once"),
            search_alg=BasicVariantGenerator(random_state=options.get("seed", 7)),
        ),
        run_config=run_config(options),
    )


def main() -> None:
    if OPTIONS.get("env_vars"):
        import holdfast

        holdfast.init(num_cpus=2, runtime_env={"env_vars": OPTIONS["env_vars"]})
    tuner = make_tuner(OPTIONS)
    mark("made")
    results = tuner.fit(resume=OPTIONS.get("resume", "never"))
    facts = [
        {
            "trial": result.metrics["trial_id"] if result.metrics else None,
            "config": result.config,
            "epoch": result.metrics.get("epoch") if result.metrics else None,
            "error": str(result.error) if result.error else None,
            "checkpoint": start_of(result.checkpoint) - 1 if result.checkpoint else None,
        }
        for result in results
    ]
    print("RESULTS", json.dumps(facts))
    if OPTIONS.get("raise_after"):
        raise LookupError("the script failed after fit()")
    sys.stdout.flush()
    os.write(2, b"the script has ended\n")


if __name__ == "__main__":
    main()
