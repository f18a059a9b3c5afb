"""tune.run with a class trainable, checkpoint_freq and resume="AUTO+ERRORED"."""

import argparse
import os

import numpy as np
from ray import tune


class TrainBandit(tune.Trainable):
    def setup(self, config):
        self.rng = np.random.default_rng(config["seed"])
        self.total = 0.0

    def step(self):
        if self.config["seed"] == 2 and self.iteration == 2 and not os.path.exists(SEEN):
            open(SEEN, "w").close()
            raise RuntimeError("lost the simulator")
        self.total += float(self.rng.normal(self.config["arm"], 0.1))
        return {"episode_reward_mean": self.total, "timesteps_this_iter": 100}

    def save_checkpoint(self, checkpoint_dir):
        return {"total": self.total, "rng": self.rng.bit_generator.state}

    def load_checkpoint(self, checkpoint):
        self.total = checkpoint["total"]
        self.rng.bit_generator.state = checkpoint["rng"]

    def cleanup(self):
        self.rng = None


SEEN = os.path.abspath("seen")


def run(args):
    return tune.run(
        TrainBandit,
        name="bandit",
        stop={"timesteps_total": 500},
        config={"arm": tune.grid_search([0.1, 0.9]), "seed": tune.grid_search([1, 2])},
        checkpoint_freq=1,
        checkpoint_at_end=True,
        keep_checkpoints_num=2,
        checkpoint_score_attr="min-episode_reward_mean",
        max_failures=1,
        storage_path=os.path.abspath("results"),
        resume=args.resume,
        verbose=args.verbose,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--resume", default="AUTO+ERRORED")
    parser.add_argument("--verbose", type=int, default=1)
    args, _ = parser.parse_known_args()
    analysis = run(args)
    assert [trial.last_result["timesteps_total"] for trial in analysis.trials] == [500] * 4
    best = analysis.get_best_trial("episode_reward_mean", mode="max")
    assert best.config["arm"] == 0.9
    assert analysis.get_last_checkpoint(best).path == best.checkpoint.path

    model = TrainBandit(best.config)  # by hand, from the last checkpoint
    model.restore(best.checkpoint)
    assert model.iteration == 5
    result = model.train()
    assert (result["training_iteration"], result["timesteps_total"]) == (6, 600)
    model.stop()
    print("DONE", best.trial_id.split("_")[-1])
