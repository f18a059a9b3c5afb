"""Train one trial of a population again, with its schedule of configs, in one piece.

    python examples/search/pbt.py --storage /tmp/results --name pbt --samples 4
    python examples/search/pbt_replay.py /tmp/results/pbt --storage /tmp/results --name again

It replays the trial that took over last.
"""

from __future__ import annotations

import sys
from pathlib import Path

from shared import curve
from shared.population import train_fn

from holdfast.tune.schedulers import PopulationBasedTrainingReplay
from holdfast.tune.search import BasicVariantGenerator

if __name__ == "__main__":
    experiment = Path(sys.argv.pop(1)) if len(sys.argv) > 1 else Path()
    logs = list(experiment.glob("pbt_policy_*.txt"))
    if not logs:
        sys.exit(f"no trial took over another in {experiment}: give the directory of a population")
    newest = max(logs, key=lambda path: path.stat().st_mtime)
    scheduler = PopulationBasedTrainingReplay(newest)
    curve.main(
        __doc__, BasicVariantGenerator, {}, train=train_fn, scheduler=scheduler, num_samples=1
    )
