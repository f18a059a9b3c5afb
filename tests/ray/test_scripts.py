"""Scripts as users of Ray write them run unchanged, and resume after a kill."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rig.ray_scripts import runs_and_resumes

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.py"))
# Each takes 3 to 9 s of CPU for its three runs. What these show, others show nearly as well.
NIGHTLY = frozenset(
    (
        *("callbacks_stoppers", "class_pbt", "config_assigned", "data_groups_joins_files"),
        *("run_experiments", "scheduler_pauses", "search_seeds", "train_data", "trainv2_tune"),
    )
)


@pytest.mark.process
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=[pytest.mark.nightly] if path.stem in NIGHTLY else [])
        for path in SCRIPTS
    ],
    ids=lambda path: path.stem,
)
def test_a_script_runs_unchanged_and_resumes_after_a_kill(tmp_path: Path, path: Path) -> None:
    runs_and_resumes(tmp_path, path)
