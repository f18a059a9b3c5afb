"""The seam of search algorithms, and random and grid search behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from holdfast.trial.errors import InvalidConfig

FINISHED: Final = "FINISHED"


class Searcher:
    """Base of search algorithms that are asked for one config at a time.

    Its methods run in one thread of the script's process, in the order of events, and may block.
    What `suggest` answered is journalled and, after a restore, told again through
    `on_trial_result` and `on_trial_complete`, never asked again.
    """

    FINISHED = FINISHED

    def __init__(self, metric: str | None = None, mode: str | None = None) -> None:
        self.metric = metric
        self.mode = mode

    def set_search_properties(
        self, metric: str | None, mode: str | None, config: Mapping[str, Any], **spec: Any
    ) -> bool:
        """Take metric, mode and space from the Tuner; False where they are set already."""
        return False

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """A config for a new trial; None for «not now», `Searcher.FINISHED` for «no more»."""
        raise NotImplementedError(f"{type(self).__name__} must define suggest()")

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """See a report."""

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """See a trial end; `result` is its last report."""


class BasicVariantGenerator:
    """Random and grid search: every grid combination, `num_samples` times.

    `points_to_evaluate`: configs, or parts of them, to begin with. `max_concurrent`: trials at
    once, 0 for no limit. `constant_grid_search`: the combinations of one sample share its random
    values. `random_state`: a whole number makes the configs reproducible.

    Raises InvalidConfig.
    """

    def __init__(
        self,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        max_concurrent: int = 0,
        constant_grid_search: bool = False,
        random_state: Any = None,
    ) -> None:
        if not isinstance(max_concurrent, int) or max_concurrent < 0:
            raise InvalidConfig(f"max_concurrent must be 0 or more, not {max_concurrent!r}")
        self.points_to_evaluate = list(points_to_evaluate or ())
        self.max_concurrent = max_concurrent
        self.constant_grid_search = constant_grid_search
        self.seed = _seed_from(random_state)


def _seed_from(state: Any) -> int | None:
    """A NumPy generator gives one draw; a number is itself."""
    if state is None or isinstance(state, int):
        return state
    for draw in ("integers", "randint"):
        method = getattr(state, draw, None)
        if callable(method):
            return int(method(0, 2**31 - 1))
    raise InvalidConfig(f"random_state must be a whole number or a NumPy generator, not {state!r}")
