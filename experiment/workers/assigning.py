"""Makes what a worker gets for one attempt at a trial, with the machines that it runs on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.experiment.worker.job import Assignment
from holdfast.experiment.workers.seating import NodeNames, Seating, seat_ranks, seat_worker
from holdfast.scheduler.effects import Launch
from holdfast.trial.encoding import to_plain
from holdfast.trial.resources import Allocation, Place
from holdfast.trial.trial import Trial


class Assigner:
    """Knows the names of the GPUs, here and on the nodes of a cluster.

    `has_gpus`: this machine has some, so that each worker must be shown its own. `has_ranks`:
    several workers train each trial. `nodes` are those that have joined, by their names.
    """

    def __init__(
        self,
        *,
        gpu_names: tuple[str, ...],
        has_gpus: bool,
        has_ranks: bool,
        nodes: Mapping[str, NodeNames],
    ) -> None:
        self._gpu_names = gpu_names
        self._has_gpus = has_gpus
        self._has_ranks = has_ranks
        self._nodes = nodes

    def assignment(self, effect: Launch, trial: Trial, held: Allocation) -> Assignment:
        """What the attempt of `effect` gets, with the resources that it holds."""
        resources = trial.granted
        seating = self._seating(resources.bundles, held.places)
        return Assignment(
            trial_id=trial.trial_id,
            trial_name=trial.spec.name,
            dirname=trial.spec.dirname,
            attempt=effect.attempt,
            config=to_plain(trial.config),
            iteration=trial.iteration,
            time_total_s=trial.time_total_s,
            next_checkpoint=trial.next_checkpoint,
            checkpoint=effect.checkpoint.dirname if effect.checkpoint else None,
            bundles=seating.bundles,
            strategy=resources.strategy,
            cpus=resources.required_resources.get("CPU", 1),
            gpus=self._gpus(held, seating),
            sets_gpus=self._sets_gpus(seating),
            nodes=seating.nodes,
        )

    def _seating(self, bundles: Sequence[Mapping[str, float]], places: Sequence[Place]) -> Seating:
        if not places:
            return Seating(bundles=bundles, nodes=())
        seat = seat_ranks if self._has_ranks else seat_worker
        return seat(bundles, places, self._nodes)

    def _gpus(self, held: Allocation, seating: Seating) -> tuple[str, ...]:
        if seating.nodes:
            return tuple(seating.nodes[0].gpus)
        return tuple(self._gpu_names[gpu] for gpu in held.gpus)

    def _sets_gpus(self, seating: Seating) -> bool:
        """Whether a machine of the trial has GPUs, which its workers must then not all see."""
        if seating.nodes:
            return any(self._nodes[node.name].gpus for node in seating.nodes)
        return self._has_gpus
