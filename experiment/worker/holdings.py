"""What this worker holds of its trial's resources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from holdfast.experiment.worker.session import Session
from holdfast.experiment.worker.torch_devices import gpus_of


def sums(amounts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """The sums by the names of resources."""
    total: dict[str, float] = {}
    for one in amounts:
        for name, amount in one.items():
            total[name] = total.get(name, 0.0) + amount
    return total


def resources_of(session: Session) -> dict[str, float]:
    """What this worker holds: a rank its own bundle, another worker all of its trial's."""
    assignment = session.assignment
    bundles = assignment.bundles if session.job.group is None else [assignment.own_bundle]
    return {name: amount for name, amount in sums(bundles).items() if amount}


def gpus_used(session: Session) -> list[str]:
    """The names of the GPUs that this worker uses: the trial's; a rank, which sees those of all
    ranks on its node, its part of them."""
    assignment = session.assignment
    if session.job.group is None:
        return list(assignment.gpus)
    own = gpus_of(assignment.local_rank, assignment.own_bundle.get("GPU", 0))
    return [assignment.gpus[at] for at in own if at < len(assignment.gpus)]
