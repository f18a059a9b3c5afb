"""Studies in virtual time: the decisions of a scheduler or a search algorithm, within seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazy

if TYPE_CHECKING:
    from holdfast.simulate.replaying import replay as replay
    from holdfast.simulate.scene import Curve as Curve
    from holdfast.simulate.scene import CurveFailed as CurveFailed
    from holdfast.simulate.scene import Faults as Faults
    from holdfast.simulate.simulation import Incumbent as Incumbent
    from holdfast.simulate.simulation import Recording as Recording
    from holdfast.simulate.simulation import Replay as Replay
    from holdfast.simulate.simulation import SimulatedTrial as SimulatedTrial
    from holdfast.simulate.simulation import Simulation as Simulation
    from holdfast.simulate.study import simulate as simulate

__getattr__, __dir__, __all__ = lazy(__name__)
