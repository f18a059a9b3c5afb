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
    for name in ("machines", "browser", "test", "check", "nightly", "test-frameworks"):
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
    installs = os.geteuid() == 0 and shutil.which("apt-get") is not None
    assert done.stdout.splitlines() == [
        *(["machines", "browser"] if installs else []),
        "test --all",
        "check",
        "nightly --sample",
        "test-frameworks --smoke --discard",
    ]
    lines = (tmp_path / "test.env").read_text().splitlines()
    bare = {name: value for name, _, value in (line.partition("=") for line in lines)}
    assert {name: value for name, value in bare.items() if name not in SHELL_OWN} == {
        "HOME": "/home/me",
        "PATH": os.environ["PATH"],
        **reaching,
    }


def test_only_environments_that_a_run_made_are_discarded(tmp_path: Path) -> None:
    """All of them together are 17 GB: a machine of CI may have less."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "test-frameworks", tmp_path / "scripts")
    for framework in ("kept", "made"):
        (tmp_path / "tests" / "frameworks" / framework).mkdir(parents=True)
    venv = tmp_path / "scripts" / "venv"
    python = '.venvs/"$1"/bin/python'
    venv.write_text(
        f'#!/usr/bin/env bash\nmkdir -p .venvs/"$1"/bin\n'
        f'printf "#!/usr/bin/env bash\\nls .venvs\\necho \\$@\\n" > {python}\nchmod +x {python}\n'
    )
    venv.chmod(0o755)
    subprocess.run([venv, "kept"], cwd=tmp_path, check=True)
    done = subprocess.run(
        [tmp_path / "scripts" / "test-frameworks", "--smoke", "--discard"],
        capture_output=True,
        text=True,
        check=True,
    )
    trained = "-m pytest tests/frameworks/{} -m smoke"
    assert done.stdout.splitlines() == [
        *("== kept", "kept", trained.format("kept")),
        *("== made", "kept", "made", trained.format("made")),
    ]
    assert [one.name for one in (tmp_path / ".venvs").iterdir()] == ["kept"]


def test_hosted_ci_runs_what_ours_runs() -> None:
    told = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    hosted = re.findall(r"- run: (\S+)", told)
    ours = re.findall(r"\bscripts/[\w-]+", (ROOT / ".ci" / "run").read_text())
    assert set(hosted) == {*ours, "scripts/release"}
    assert all(os.access(ROOT / script, os.X_OK) for script in hosted)
