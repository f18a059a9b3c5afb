"""A user's script on a machine of its own, killed and restored as a test likes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from holdfast.testing import checker
from holdfast.testing.s3_server import S3Server, make_bucket, moto_server, rclone_server
from holdfast.testing.script import Gate, UserScript, read_notes

USER_SCRIPT = Path(__file__).parent / "user_script.py"


@dataclass
class Bench:
    """Where one experiment of `user_script.py` is run: `options` are the same for each start."""

    folder: Path
    stack: ExitStack
    options: dict[str, Any] = field(default_factory=dict)
    environ: dict[str, str] = field(default_factory=dict)

    @property
    def storage(self) -> Path:
        return self.folder / "storage"

    @property
    def root(self) -> Path:
        return self.storage / "run"

    def start(self, **options: Any) -> UserScript:
        """Run the script; what is given here is said besides `self.options`."""
        given = {"storage": str(self.storage), "epochs": 4, **self.options, **options}
        return self.run(USER_SCRIPT, json.dumps(given))

    def restore(self, resume: dict[str, Any] | None = None, **options: Any) -> UserScript:
        return self.start(restore=resume or {}, **options)

    def run(self, path: Path, *arguments: str, cwd: Path | None = None) -> UserScript:
        script = UserScript(
            path, *arguments, folder=self.folder / "bench", environ=self.environ, cwd=cwd
        )
        return self.stack.enter_context(script)

    def write(self, text: str, name: str = "script.py") -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def gate(self, name: str) -> Gate:
        gate = Gate(self.folder / "bench", name)
        self.stack.callback(gate.open)
        return gate

    def notes(self) -> list[dict[str, Any]]:
        return read_notes(self.folder / "bench")

    def problems(self, root: Path | None = None, **options: Any) -> list[str]:
        """What an independent checker finds wrong with the experiment's directory."""
        return checker.check(root or self.root, notes=self.notes(), **options)


def results(script: UserScript) -> list[dict[str, Any]]:
    """What the script printed of its results, in the order of the trials."""
    script.finish_reading()
    for line in script.stdout.splitlines():
        if line.startswith("RESULTS "):
            found: list[dict[str, Any]] = json.loads(line.removeprefix("RESULTS "))
            return found
    raise AssertionError(f"the script printed no results: {script.stdout}\n{script.stderr}")


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """No telemetry of time: a grace of 2 s, a snapshot each 0.2 s, no progress table."""
    with ExitStack() as stack:
        yield Bench(
            folder=tmp_path,
            stack=stack,
            environ={
                "HOLDFAST_STOP_GRACE_S": "2",
                "HOLDFAST_FLUSH_DEADLINE_S": "10",
                "HOLDFAST_SNAPSHOT_PERIOD_S": "0.2",
                "HOLDFAST_FSYNC_PERIOD_S": "0.05",
                "HOME": str(tmp_path / "home"),
            },
        )


@pytest.fixture
def results_of() -> Callable[[UserScript], list[dict[str, Any]]]:
    return results


@pytest.fixture(scope="session")
def moto() -> Iterator[S3Server]:
    """A moto server with a bucket named `bucket`."""
    with moto_server() as server:
        make_bucket(server, "bucket")
        yield server


@pytest.fixture(scope="session")
def rclone_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rclone")
    (folder / "bucket").mkdir()
    return folder


@pytest.fixture(scope="session")
def rclone(rclone_folder: Path) -> Iterator[S3Server]:
    with rclone_server(rclone_folder) as server:
        yield server
