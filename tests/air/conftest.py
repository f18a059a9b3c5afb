"""Whole experiments with trackers, from outside."""

from __future__ import annotations

from tests.rig.isolation import by_value as by_value
from tests.rig.isolation import in_own_environment as in_own_environment
from tests.rig.isolation import leaves_nothing as leaves_nothing
