"""Environment variables that say what a run writes."""

from __future__ import annotations

import pytest

from holdfast.experiment.folder.settings import Settings


@pytest.mark.parametrize(
    ("environ", "written"),
    [
        ({}, True),
        ({"TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1"}, False),
        ({"TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1", "HOLDFAST_TENSORBOARD": "1"}, True),
        ({"HOLDFAST_TENSORBOARD": "0"}, False),
    ],
)
def test_event_files_are_written_unless_a_variable_says_otherwise(
    environ: dict[str, str], written: bool
) -> None:
    assert Settings.read(environ).tensorboard is written
