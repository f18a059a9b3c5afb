"""Shorter beats between a script and its nodes: a campaign would wait most of its time for them.

The variable is not one of HOLDFAST_TEST_*, so ssh passes it on to no node: an agent gets its
beats from the script.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

VARIABLE: Final = "FAULTS_BEATS"


def environ_for(**seconds: float) -> dict[str, str]:
    """The environment of a script whose `FleetSettings` have these defaults."""
    return {VARIABLE: json.dumps(seconds)}


def install(environ: Mapping[str, str]) -> None:
    """Called by `sitecustomize`: change the defaults before the first use."""
    if VARIABLE in environ:
        from holdfast.runtime.fleet.facts import FleetSettings

        for name, seconds in json.loads(environ[VARIABLE]).items():
            FleetSettings.__dataclass_fields__[name].default = seconds
