"""Where a run's trials may run: on this machine, or on the nodes that a cluster offers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from holdfast.experiment.control.machine_resources import MachineResources
from holdfast.experiment.folder.settings import Settings
from holdfast.experiment.nodes.engines import PlannedEngine, engine_of
from holdfast.experiment.worker.train_loop import TrainLoop
from holdfast.runtime.warm.memory_groups import CannotEnforce, prepare
from holdfast.scheduler.capacity import Capacity
from holdfast.scheduler.events import ExperimentSpec
from holdfast.scheduler.nodes.cluster import Cluster
from holdfast.scheduler.nodes.offering import may_fit, offer_text
from holdfast.trial.config import PERIOD_ON_NODES_S, SyncConfig
from holdfast.trial.errors import ImpossibleResources, InvalidConfig
from holdfast.trial.options import ENFORCED
from holdfast.trial.resources import (
    NodeKind,
    PlacementGroupFactory,
    comparable,
    misnamed,
)


def check_resources(
    trainable: object,
    resources: object,
    host_resources: MachineResources,
    offer: Sequence[NodeKind],
) -> None:
    """Refuse resources that this machine, or the cluster, does not have: no trial would ever
    start.

    Raises ImpossibleResources.
    """
    if not isinstance(resources, PlacementGroupFactory):
        return
    wanted, total = resources.least_resources, dict(host_resources.total)
    if offer:
        _check_offer(resources, offer)
        return
    if Capacity(total).ever_fits(wanted):
        return
    who, where = "each trial asks", "tune.with_resources()"
    if isinstance(trainable, TrainLoop):
        workers = resources.least_bundles - 1
        who, where = f"{workers} workers ask", f"ScalingConfig(num_workers={workers}, ...)"
    has = comparable(total, wanted)
    raise ImpossibleResources(
        f"{who} for {wanted}, this machine has {has}: no trial could ever start."
        f"{misnamed(wanted, total)} "
        f"Ask for less in {where}, or declare what the machine has in holdfast.init()",
        wanted,
        has,
    )


def check_limits(offer: Sequence[NodeKind], *, enforces_memory: bool) -> None:
    """Refuse to enforce the resource memory where this machine does not allow it; on a cluster
    each node finds out. Raises InvalidConfig."""
    if enforces_memory and not offer:
        try:
            prepare()
        except CannotEnforce as error:
            raise InvalidConfig(str(error)) from error


def with_recorded_limits(
    settings: Settings, spec: ExperimentSpec, offer: Sequence[NodeKind]
) -> tuple[Settings, str]:
    """The settings of a resumed run: it enforces the resource memory if the run has done so and
    this process has not said anything else. With a notice if it does not; "" otherwise."""
    if settings.enforce_memory or not spec.options.get(ENFORCED):
        return settings, ""
    notice = "So far, trials could not use more memory than they request; from now on they can: "
    if settings.enforce_memory is False:
        return settings, f"{notice}holdfast.init() has no enforce_memory=True here"
    try:
        check_limits(offer, enforces_memory=True)
    except InvalidConfig as error:
        return settings, f"{notice}{error}"
    return replace(settings, enforce_memory=True), ""


def _check_offer(resources: PlacementGroupFactory, offer: Sequence[NodeKind]) -> None:
    cluster = Cluster(offer)
    if may_fit(cluster, resources.first(resources.least_bundles)):
        return
    bundles = [dict(bundle) for bundle in resources.bundles[: resources.least_bundles]]
    wanted = bundles[0] if len(bundles) == 1 else f"{bundles} ({resources.strategy})"
    raise ImpossibleResources(
        f"each trial asks for {wanted}, and the cluster offers {offer_text(cluster, resources)}: "
        f"no trial could ever start.{misnamed(resources.least_resources, ())} "
        f"Each bundle must fit on one node. Ask for less in "
        f"tune.with_resources() or ScalingConfig(...), or offer larger nodes",
        resources.least_resources,
        {},
    )


def engine_for(host_resources: MachineResources) -> PlannedEngine | None:
    """The engine of the cluster; None if trials run on this machine. Raises InvalidConfig."""
    if host_resources.cluster is None:
        return None
    return engine_of(
        host_resources.cluster,
        machine=host_resources.total,
        gpu_names=host_resources.gpu_names,
        environ=os.environ,
    )


def offer_of(engine: PlannedEngine | None) -> list[NodeKind]:
    """The nodes that the engine could supply, as the machine knows them."""
    if engine is None:
        return []
    return [
        NodeKind(
            name=kind.name,
            resources=kind.resources or {},
            most=engine.most_of(kind),
            detects=[name for name in engine.detects if name not in (kind.resources or {})],
        )
        for kind in engine.offer.kinds
    ]


def capacity_of(host_resources: MachineResources, offer: Sequence[NodeKind]) -> dict[str, float]:
    """The resources of this machine; none if trials run on nodes."""
    return {} if offer else dict(host_resources.total)


def sync_of(sync: SyncConfig, engine: PlannedEngine | None) -> SyncConfig:
    """The sync settings, with a shorter default period on a cluster: there the output of trials,
    and what a loss of this machine costs, wait for the next publication."""
    is_default = sync.sync_period == SyncConfig().sync_period
    on_nodes = engine is not None and is_default
    return replace(sync, sync_period=PERIOD_ON_NODES_S) if on_nodes else sync
