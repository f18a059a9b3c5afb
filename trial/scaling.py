"""ScalingConfig: how many workers train one trial together, and what each requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from holdfast.compat.advice import Assignable, explains_keywords
from holdfast.dataclass import dataclass
from holdfast.plain_numbers import plain_number
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.resources import STRATEGIES, PlacementGroupFactory, validated
from holdfast.trial.space import Domain, is_searched

Choice = Domain | dict[str, list[Any]]


@explains_keywords
@dataclass(unsafe_hash=True)
class ScalingConfig(Assignable):
    """`num_workers` processes train one trial together; each requests `resources_per_worker`.

    `num_workers` may be a pair (least, most): the trial starts with the workers that fit,
    continues with fewer after it loses one, and with more when resources are free again.
    `resources_per_worker`: by default one CPU, and one GPU with `use_gpu`. `trainer_resources`:
    the coordinator's; it needs none, because it is not a process. `placement_strategy` and
    `accelerator_type` are kept for engines with several machines.

    The others are those of Train V2. `label_selector` has no effect, because machines have no
    labels: a custom resource does that job (`resources_per_worker={"CPU": 1, "a100": 1}`, with
    `resources_per_node` of the cluster). `use_tpu` and `topology` are refused: there are no TPUs.
    `elastic_resize_monitor_interval_s` has no effect: an elastic training grows when resources
    become free, and does not poll.

    In a Tuner's `param_space`, the fields may be domains and grids.

    Raises InvalidConfig.
    """

    trainer_resources: Mapping[str, float] | None = None
    num_workers: int | tuple[int, int] | Choice = 1
    use_gpu: bool | Choice = False
    resources_per_worker: Mapping[str, float] | Choice | None = None
    placement_strategy: str | Choice = "PACK"
    accelerator_type: str | None = None
    label_selector: Mapping[str, str] | Sequence[Mapping[str, str]] | None = None
    use_tpu: bool = False
    topology: str | None = None
    elastic_resize_monitor_interval_s: float = 60.0

    def __post_init__(self) -> None:
        if self.use_tpu or self.topology is not None:
            raise InvalidConfig(
                "ScalingConfig(use_tpu=..., topology=...): there are no TPUs here. Leave both "
                "out, or declare them as a custom resource: holdfast.init(resources={'TPU': 4})"
            )
        if is_searched(self.chosen):
            return
        least, most = self.least_workers, self.most_workers
        if least < 1 or most < least:
            raise InvalidConfig(
                f"ScalingConfig(num_workers={self.num_workers!r}): num_workers must be at least "
                "1; a pair must be (least, most)"
            )
        if self.placement_strategy not in STRATEGIES:
            raise InvalidConfig(
                f"ScalingConfig(placement_strategy={self.placement_strategy!r}) must be one of "
                f"{STRATEGIES}"
            )
        if self.use_gpu and not self.worker_resources.get("GPU"):
            raise InvalidConfig(
                "ScalingConfig(use_gpu=True) needs a GPU in resources_per_worker: leave 'GPU' "
                "out, or give it an amount"
            )
        if not self.use_gpu and self.worker_resources.get("GPU"):
            raise InvalidConfig(
                "ScalingConfig(resources_per_worker) requests GPUs: set use_gpu=True"
            )

    @property
    def chosen(self) -> dict[str, Any]:
        """The fields that differ from their defaults."""
        every = {one.name: (getattr(self, one.name), one.default) for one in fields(self)}
        return {name: value for name, (value, default) in every.items() if value != default}

    @property
    def least_workers(self) -> int:
        """The smallest number of workers with which the trial can run."""
        return self._bounds[0]

    @property
    def most_workers(self) -> int:
        """The largest number of workers that the trial can use."""
        return self._bounds[1]

    @property
    def without_effect(self) -> dict[str, Any]:
        """The settings that were given and have no effect here."""
        names = ("label_selector", "accelerator_type")
        return {name: value for name in names if (value := getattr(self, name))}

    @property
    def min_workers(self) -> int:
        """Train V2's name of `least_workers`."""
        return self.least_workers

    @property
    def max_workers(self) -> int:
        """Train V2's name of `most_workers`."""
        return self.most_workers

    @property
    def elasticity_enabled(self) -> bool:
        """Train V2's name of `is_elastic`."""
        return self.is_elastic

    @property
    def is_elastic(self) -> bool:
        """True if `num_workers` is a pair of two different numbers."""
        return self.least_workers != self.most_workers

    @property
    def _bounds(self) -> tuple[int, int]:
        given: Any = self.num_workers
        pair = tuple(given) if isinstance(given, (tuple, list)) else (given, given)
        pair = tuple(map(plain_number, pair))
        if len(pair) != 2 or not all(type(number) is int for number in pair):
            raise InvalidConfig(
                f"ScalingConfig(num_workers={given!r}) must be a whole number, or a pair of them "
                f"such as (2, 4)"
            )
        return pair[0], pair[1]

    @property
    def worker_resources(self) -> dict[str, float]:
        """The resources that one worker requests."""
        given: Any = self.resources_per_worker
        if given is None:
            return {"CPU": 1, "GPU": 1} if self.use_gpu else {"CPU": 1}
        amounts = validated(given, where="ScalingConfig(resources_per_worker)")
        return {"GPU": 1, **amounts} if self.use_gpu else amounts

    @property
    def num_cpus_per_worker(self) -> float:
        """The CPUs that one worker requests."""
        return self.worker_resources.get("CPU", 0)

    @property
    def num_gpus_per_worker(self) -> float:
        """The GPUs that one worker requests."""
        return self.worker_resources.get("GPU", 0)

    @property
    def additional_resources_per_worker(self) -> dict[str, float]:
        """The resources that one worker requests, except CPUs and GPUs."""
        kinds = ("CPU", "GPU")
        return {key: n for key, n in self.worker_resources.items() if key not in kinds}

    @property
    def total_resources(self) -> dict[str, float]:
        """The sum over the largest number of workers and the coordinator."""
        return self.as_placement_group_factory().required_resources

    def as_placement_group_factory(self, workers: int | None = None) -> PlacementGroupFactory:
        """The coordinator's bundle, then one per worker (`workers`; None for the largest
        number)."""
        count = self.most_workers if workers is None else workers
        head = validated(self.trainer_resources or {}, where="ScalingConfig(trainer_resources)")
        bundles = [head, *(self.worker_resources for _ in range(count))]
        least = None if workers is not None else 1 + self.least_workers
        return PlacementGroupFactory(bundles, str(self.placement_strategy), least_bundles=least)

    @classmethod
    def from_placement_group_factory(cls, pgf: PlacementGroupFactory) -> ScalingConfig:
        """The config that `pgf` was made from. Raises InvalidConfig if its workers differ."""
        head, *workers = pgf.bundles
        if any(bundle != workers[0] for bundle in workers):
            raise InvalidConfig(f"the worker bundles in {pgf!r} are not all the same")
        each = workers[0] if workers else {}
        return cls(
            trainer_resources=head or None,
            num_workers=(pgf.least_bundles - 1, len(workers)) if pgf.is_elastic else len(workers),
            use_gpu=bool(each.get("GPU")),
            resources_per_worker=each,
            placement_strategy=pgf.strategy,
        )
