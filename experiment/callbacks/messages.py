"""Messages to the user, as every part of a run sends them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

# "loss": something is not kept.
Level = Literal["info", "warning", "loss", "error"]
# Shows the user a text. The control loop calls it too, so it must not block.
Tell = Callable[[str, Level], None]
