"""Scripts as users of Ray write them run unchanged, and resume after a kill."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rig.ray_scripts import runs_and_resumes

SCRIPTS = sorted((Path(__file__).parent / "ray_scripts").glob("*.py"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_runs_unchanged_and_resumes_after_a_kill(tmp_path: Path, path: Path) -> None:
    runs_and_resumes(tmp_path, path, warnings="ignore")  # those of the libraries
