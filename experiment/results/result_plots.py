"""`result.plot`: pictures of one trial."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.experiment.folder.row_lines import Row
from holdfast.experiment.results.drawing.curves import PlotCurve, draw_curves, points
from holdfast.experiment.results.ranking import AUTOMATIC, reported_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PANELS = 4


class _OneTrial(Protocol):
    """The parts of a Result that its pictures need."""

    @property
    def metrics(self) -> dict[str, Any] | None: ...
    @property
    def error(self) -> Exception | None: ...
    def rows(self) -> list[Row]: ...


class ResultPlots:
    """Pictures of one trial."""

    def __init__(self, result: _OneTrial) -> None:
        self._result = result

    def learning_curves(
        self,
        metrics: str | Sequence[str] | None = None,
        *,
        x: str = "training_iteration",
        ax: Axes | None = None,
    ) -> Axes:
        """The `metrics` (one name, or several) over `x`; by default the trial's first four.

        Raises PlotsMissing without matplotlib (`pip install matplotlib`).
        """
        rows = self._result.rows()
        names = [metrics] if isinstance(metrics, str) else list(metrics or ())
        if not names:
            found = [name for name in reported_names(rows) if name not in AUTOMATIC]
            names = [name for name in found if points(rows, name, x)[0]][:_PANELS]
        curves = []
        for name in names:
            xs, ys = points(rows, name, x)
            curves.append(
                PlotCurve(label=name, xs=xs, ys=ys, has_failed=self._result.error is not None)
            )
        title = str((self._result.metrics or {}).get("experiment_tag") or "one trial")
        shown = names[0] if len(names) == 1 else "value" if names else "a number"
        return draw_curves(curves, metric=shown, x=x, ax=ax, title=title)
