"""Imported by Python at the start of every process of a campaign: see the modules named here."""

import os

from tests.rig import faults, powercut, silent_disk

faults.install(os.environ)
powercut.install(os.environ)
silent_disk.install(os.environ)
