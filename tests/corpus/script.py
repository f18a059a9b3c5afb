"""A script of the corpus, which scripts/corpus runs: `python script.py SCENARIO`.

All that does not depend on time is the same in each run.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import holdfast
from holdfast import train, tune

SCRIPT = os.environ.setdefault("CORPUS_PID", str(os.getpid()))


def objective(config: dict[str, Any]) -> None:
    """Ten rows with checkpoints; fails, dies or kills the script where the config says so."""
    begin = 0
    if checkpoint := tune.get_checkpoint():
        with checkpoint.as_directory() as folder:
            begin = json.loads(Path(folder, "state.json").read_text())["epoch"]
    once = Path(os.environ["CORPUS_FOLDER"], f"happened-{config.get('x')}")
    for epoch in range(begin + 1, config.get("epochs", 10) + 1):
        if epoch == config.get("at") and not once.exists():
            once.touch()
            match config["what"]:
                case "raise":
                    raise ValueError(f"epoch {epoch} went wrong")
                case "kill worker":
                    os.kill(os.getpid(), signal.SIGKILL)
                case "kill script":
                    os.kill(int(SCRIPT), signal.SIGKILL)
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "state.json").write_text(json.dumps({"epoch": epoch}))
            metrics = {"loss": (config["x"] - 3) ** 2 / epoch, "nested": {"epoch": epoch}}
            tune.report(metrics, checkpoint=tune.Checkpoint.from_directory(folder))


class Steps(tune.Trainable):
    def setup(self, config: dict[str, Any]) -> None:
        self.x = config["x"]

    def step(self) -> dict[str, Any]:
        return {"score": self.x * self.iteration}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        Path(checkpoint_dir, "x").write_text(str(self.x))

    def load_checkpoint(self, checkpoint_dir: str) -> None:
        self.x = int(Path(checkpoint_dir, "x").read_text())

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.x = new_config["x"]
        return True


def population(config: dict[str, Any]) -> None:
    lr, begin, score = config["lr"], 0, 0.0
    if checkpoint := tune.get_checkpoint():
        with checkpoint.as_directory() as folder:
            begin, score = json.loads(Path(folder, "state.json").read_text())
    for epoch in range(begin + 1, 13):
        score += lr
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "state.json").write_text(json.dumps([epoch, score]))
            tune.report({"score": score}, checkpoint=tune.Checkpoint.from_directory(folder))


def loop(config: dict[str, Any]) -> None:
    rank = train.get_context().get_world_rank()
    for epoch in range(4):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, f"rank-{rank}").write_text(str(epoch))
            checkpoint = train.Checkpoint.from_directory(folder)
            train.report({"loss": config["lr"] / (epoch + 1), "rank": rank}, checkpoint=checkpoint)


def run_config(**given: Any) -> tune.RunConfig:
    storage = os.environ.get("CORPUS_STORAGE", os.environ["CORPUS_FOLDER"] + "/results")
    return tune.RunConfig(name="run", storage_path=storage, **given)


def tuner(trainable: Any, space: dict[str, Any], given: dict[str, Any], **run: Any) -> tune.Tuner:
    goal = {"metric": "loss", "mode": "min", "max_concurrent_trials": 1} | given
    return tune.Tuner(
        trainable,
        param_space=space,
        tune_config=tune.TuneConfig(**goal),
        run_config=run_config(**run),
    )


def made(scenario: str) -> Any:
    at = {"what": tune.sample_from(lambda spec: "raise" if spec.config.x == 1 else ""), "at": 4}
    keep = tune.CheckpointConfig(
        num_to_keep=2, checkpoint_score_attribute="loss", checkpoint_score_order="min"
    )
    grid = {"x": tune.grid_search([0, 1, 2])}
    score = {"metric": "score", "mode": "max"}
    match scenario:
        case "retries":
            failures = tune.FailureConfig(max_failures=1)
            return tuner(objective, grid | at, {}, failure_config=failures, checkpoint_config=keep)
        case "errors":
            return tuner(objective, grid | at, {})
        case "lost-worker":
            return tuner(objective, {"x": 1, "what": "kill worker", "at": 5}, {})
        case "killed":
            what = tune.sample_from(lambda spec: "kill script" if spec.config.x == 1 else "")
            return tuner(objective, grid | {"what": what, "at": 6}, {}, checkpoint_config=keep)
        case "asha":
            asha = tune.schedulers.ASHAScheduler(max_t=9, grace_period=1, reduction_factor=3)
            space = {"x": tune.uniform(0, 6), "epochs": 9}
            search = tune.search.BasicVariantGenerator(random_state=7)
            return tuner(
                objective, space, {"num_samples": 12, "scheduler": asha, "search_alg": search}
            )
        case "population":
            pbt = tune.schedulers.PopulationBasedTraining(
                time_attr="training_iteration",
                perturbation_interval=3,
                hyperparam_mutations={"lr": [0.1, 0.2, 0.4]},
                resample_probability=0,
                custom_explore_fn=lambda config: {"lr": min(config["lr"] * 2, 0.4)},
                synch=True,
            )
            space = {"lr": tune.grid_search([0.1, 0.2, 0.4, 0.05])}
            search = tune.search.BasicVariantGenerator(random_state=5)
            given = {"scheduler": pbt, "max_concurrent_trials": 4, "search_alg": search}
            return tuner(population, space, score | given)
        case "class":
            space = {"x": tune.grid_search([1, 2, 3])}
            kept = tune.CheckpointConfig(checkpoint_frequency=2, checkpoint_at_end=True)
            given = score | {"reuse_actors": True}
            return tuner(
                Steps, space, given, stop={"training_iteration": 5}, checkpoint_config=kept
            )
        case "stopper":
            stop = {"nested/epoch": 4}
            search = tune.search.BasicVariantGenerator(random_state=1)
            given = {"num_samples": 5, "search_alg": search}
            return tuner(objective, {"x": tune.choice([1, 2, 5])}, given, stop=stop)
        case "nodes":
            holdfast.init(cluster=holdfast.cluster.Local(agents=2))
            return tuner(
                objective, {"x": tune.grid_search([1, 2, 3, 4])}, {"max_concurrent_trials": 2}
            )
        case "trainer":
            return train.DataParallelTrainer(
                loop,
                train_loop_config={"lr": 0.5},
                scaling_config=train.ScalingConfig(num_workers=2),
                run_config=run_config(),
            )
    raise SystemExit(f"there is no scenario {scenario}")


def main() -> None:
    work = made(sys.argv[1])
    result = work.fit(resume="auto")
    best = result.best if hasattr(result, "best") else result
    print(
        "RESULT",
        json.dumps(
            [best.config, best.metrics.get("loss", best.metrics.get("score"))], default=str
        ),
    )


if __name__ == "__main__":
    main()
