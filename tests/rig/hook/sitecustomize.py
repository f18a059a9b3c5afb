"""Python imports this at the start of every process of a campaign: see the modules named here."""

import os

from tests.rig.faults import deaths, powercut, quick_beats, silent_disk

deaths.install(os.environ)
powercut.install(os.environ)
silent_disk.install(os.environ)
quick_beats.install(os.environ)
