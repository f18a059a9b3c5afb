"""The collective of the ranks of one trial: XGBoost's own, over loopback."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from holdfast.assignable import Assignable
from holdfast.dataclass import dataclass
from holdfast.experiment.worker.train_loop import BackendConfig, Rank
from holdfast.lazy import Framework
from holdfast.trial.errors import InvalidConfig

XGBOOST = Framework(
    title="XGBoost",
    module="xgboost",
    minimum="2.1",  # older trackers take other arguments
    distributions=("xgboost", "xgboost-cpu"),
)


@dataclass(unsafe_hash=True)
class XGBoostConfig(Assignable, BackendConfig):
    """The ranks train one model together. An operation of the group may take `timeout_s`.

    Raises InvalidConfig, and ImportError if XGBoost is not installed, or too old.
    """

    xgboost_communicator: str = "rabit"
    timeout_s: int = 1800
    modules = ("xgboost", "xgboost.tracker")

    def __post_init__(self) -> None:
        if self.xgboost_communicator != "rabit":
            raise InvalidConfig(
                f"XGBoostConfig(xgboost_communicator={self.xgboost_communicator!r}): there is "
                f"'rabit'"
            )
        XGBOOST.check()

    @contextmanager
    def joined(self, rank: Rank) -> Iterator[None]:
        """Raises what XGBoost raises."""
        if rank.world_size == 1:
            yield
            return
        from xgboost.collective import CommunicatorContext

        tracker, arguments = self._meet(rank)
        # XGBoost numbers its ranks in the order of these names, so that they match the trial's.
        arguments |= {"dmlc_task_id": f"{rank.rank:08d}", "dmlc_timeout": self.timeout_s}
        group = CommunicatorContext(**arguments)
        group.__enter__()
        try:
            yield
        except BaseException:
            # The other ranks may be gone, and this process ends anyway. A tracker that Python
            # frees meanwhile would print twenty lines about its socket after the cause.
            if tracker is not None:
                vars(tracker).pop("handle", None)
            raise
        group.__exit__()
        if tracker is not None:
            tracker.wait_for(self.timeout_s)

    def _meet(self, rank: Rank) -> tuple[Any, dict[str, Any]]:
        """The tracker, which rank 0 owns, and the arguments that it has for all ranks."""
        if rank.rank:
            return None, json.loads(rank.meet(""))
        from xgboost.tracker import RabitTracker

        tracker = RabitTracker(rank.world_size, host_ip=rank.address, sortby="task")
        tracker.start()
        arguments = dict(tracker.worker_args())
        rank.meet(json.dumps(arguments))
        return tracker, arguments
