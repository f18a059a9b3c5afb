"""Scripts as users of Ray write them run unchanged, and resume after a kill."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rig.ray_scripts import runs_and_resumes

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.py"))
# Each takes 3 to 7 s of CPU for its three runs: the others run in the nightly tier.
KEPT = frozenset(
    (
        *("data_csv_preprocessors", "older_names", "run_asha_analysis", "run_class_resume"),
        "trainv2_validation",
    )
)


@pytest.mark.process
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=[] if path.stem in KEPT else [pytest.mark.nightly])
        for path in SCRIPTS
    ],
    ids=lambda path: path.stem,
)
def test_a_script_runs_unchanged_and_resumes_after_a_kill(tmp_path: Path, path: Path) -> None:
    runs_and_resumes(tmp_path, path)
