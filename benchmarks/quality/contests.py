"""All contests: which algorithm runs on which tasks, against which peers, and what its paper
claims."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.quality.contest import Contest
from benchmarks.quality.schedulers import SCHEDULERS
from benchmarks.quality.searches import SEARCHES

CONTESTS: Sequence[Contest] = [*SCHEDULERS, *SEARCHES]
