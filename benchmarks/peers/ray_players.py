"""All algorithms of Ray Tune that are run."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import ray

from benchmarks.peers.clock import Player
from benchmarks.peers.ray_schedulers import SCHEDULERS
from benchmarks.peers.ray_searches import SEARCHES
from benchmarks.tasks.task import Task

PLAYERS: Mapping[str, Callable[[Task, int], Player]] = {**SCHEDULERS, **SEARCHES}
VERSION = str(ray.__version__)
