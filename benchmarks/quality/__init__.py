"""The quality of each algorithm over time, compared with its peers.

External tasks (surrogates of LCBench and rbv2_xgboost; docs/quality.md has the protocol), in the
environment that `scripts/venv quality` makes:

    from benchmarks.quality.external import development, regret
    from benchmarks.tasks.domains import conditional

    for task in development("lcbench"):  # or "curves", which report each epoch, or "xgboost"
        regret(task, make_searcher=lambda task, seed: MySearcher(seed=seed), budget=100, seed=3)

The answer is the regret after 12.5, 25, 50 and 100 trainings: 0 is the best known value, 1 the
median of random configurations. The Tuner gets `conditional(task.space, tune)`.

`scripts/quality external --contestants NAME ...` runs those of external/contestants.py and stores
the results; `scripts/quality` runs the contests on the other tasks.
"""
