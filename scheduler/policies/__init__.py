"""The ready-made trial schedulers, each with its paper, and what several share.

Each is a subclass of `holdfast.scheduler.policy.TrialScheduler`; `median.py` is a short one to
start with. docs/adding.md shows how to add one.
"""
