"""Scripts as users of Ray write them run unchanged, and resume after a kill."""

from __future__ import annotations

from pathlib import Path

from tests.rig.ray_scripts import runs_and_resumes


def test_a_script_runs_unchanged_and_resumes_after_a_kill(
    tmp_path: Path, ray_script: Path
) -> None:
    runs_and_resumes(tmp_path, ray_script, warnings="ignore")  # those of the libraries
