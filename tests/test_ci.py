"""CI runs what README tells a new user to run, in an environment as bare as theirs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent
SHELL_OWN = {"PWD", "SHLVL", "_", "OLDPWD"}


def test_ci_runs_the_tests_with_nothing_but_what_reaches_the_registries(tmp_path: Path) -> None:
    (tmp_path / ".ci").mkdir()
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci" / "run")
    for name in ("test", "check", "nightly", "test-frameworks"):
        script = tmp_path / "scripts" / name
        told = f'env > "{tmp_path}/{name}.env"\necho {name} "$@"\n'
        script.write_text(f"#!/usr/bin/env bash\n{told}")
        script.chmod(0o755)
    reaching = {"PIP_INDEX": "a b", "SSL_CERT_FILE": "c", "https_proxy": "d"}
    others = {"PYTHONUNBUFFERED": "1", "CI": "true", "LANG": "C.UTF-8"}
    done = subprocess.run(
        [tmp_path / ".ci" / "run"],
        env={"HOME": "/home/me", "PATH": os.environ["PATH"], **reaching, **others},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == [
        "test",
        "check",
        "nightly --sample",
        "test-frameworks --smoke",
    ]
    lines = (tmp_path / "test.env").read_text().splitlines()
    bare = {name: value for name, _, value in (line.partition("=") for line in lines)}
    assert {name: value for name, value in bare.items() if name not in SHELL_OWN} == {
        "HOME": "/home/me",
        "PATH": os.environ["PATH"],
        **reaching,
    }


def test_hosted_ci_runs_what_ours_runs() -> None:
    told = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    hosted = re.findall(r"- run: (\S+)", told)
    ours = re.findall(r"\bscripts/[\w-]+", (ROOT / ".ci" / "run").read_text())
    assert set(hosted) == {*ours, "scripts/release"}
    assert all(os.access(ROOT / script, os.X_OK) for script in hosted)
