"""Python imports this at the start of every process of a script that is held at a report."""

import os

from tests.rig import held_reports

held_reports.install(os.environ, held_reports.is_warm_parent())
