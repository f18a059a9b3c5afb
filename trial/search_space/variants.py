"""Draws configurations from a search space: every grid combination, `num_samples` times.

A space is compiled once into nodes; configuration i is then a pure function of the space, of i and
of the generator: after a restore, the trials that were not created yet are the same.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.trial.domains import Random
from holdfast.trial.errors import InvalidSearchSpace
from holdfast.trial.search_space.compiler import compile_space
from holdfast.trial.search_space.template import Template


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One configuration: `evaluated` has only its varied parameters, named as in `net/width`.

    `config` has a Ref for each value of the space that is not plain. Results of `sample_from`
    functions and values of `points_to_evaluate` are unchanged in it: the shell makes Opaques of
    them (`values.seal`) before it is journalled.
    """

    index: int
    config: dict[str, Any]
    evaluated: dict[str, Any]


class Space:
    """A compiled search space.

    `points_to_evaluate`: presets, each for one of the first samples; the parameters that a preset
    leaves open are sampled, and open grids are run through. With `constant_grid_search`, all grid
    combinations of one sample share the same random values.

    Raises InvalidSearchSpace, naming the key, for a space or a preset that cannot be sampled.
    """

    __slots__ = ("_constant", "_ends", "_presets", "_template", "notices")

    def __init__(
        self,
        space: Mapping[str, Any],
        *,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        constant_grid_search: bool = False,
    ) -> None:
        notices: list[str] = []
        self._template = compile_space(space, None, "param_space", notices)
        self._presets = [
            compile_space(space, point, f"points_to_evaluate[{i}]", notices)
            for i, point in enumerate(points_to_evaluate or ())
        ]
        self._ends = list(accumulate(preset.size for preset in self._presets))
        self._constant = constant_grid_search
        self.notices = tuple(notices)
        """Warnings about the presets: values that their domains never have."""

    @property
    def grid_size(self) -> int:
        """The number of grid combinations, 1 without a grid."""
        return self._template.size

    def total(self, num_samples: int) -> int | None:
        """The number of variants; None for -1 (no limit). Raises InvalidSearchSpace."""
        if num_samples == -1:
            return None
        if num_samples < 0:
            raise InvalidSearchSpace(
                f"num_samples must be a number of samples, or -1 for no limit, not {num_samples}"
            )
        left = max(0, num_samples - len(self._presets))
        return self._preset_total + left * self._template.size

    def stream(self, index: int) -> int:
        """The number of the random stream of variant `index`, the seed of its generator.

        It is `index` itself or, with `constant_grid_search`, the first index of its sample.
        """
        return index - self._locate(index)[1] if self._constant else index

    def variant(self, index: int, rng: Random) -> Variant:
        """Configuration number `index` (from 0), drawn from a fresh generator.

        Seed the generator with the experiment's seed and `stream(index)`. Calls the user's
        `sample_from` functions. Raises InvalidSearchSpace, naming the key, if one of them raises
        or if they wait for each other.
        """
        template, combination = self._locate(index)
        config = template.draw(combination, rng)
        return Variant(index=index, config=config, evaluated=template.evaluated(config))

    @property
    def _preset_total(self) -> int:
        return self._ends[-1] if self._ends else 0

    def _locate(self, index: int) -> tuple[Template, int]:
        if index >= self._preset_total:
            return self._template, (index - self._preset_total) % self._template.size
        number = bisect_right(self._ends, index)
        preset = self._presets[number]
        return preset, index - self._ends[number] + preset.size
