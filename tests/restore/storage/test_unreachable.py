"""Storage that does not answer: an error after its deadline, and the process ends at once."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.rig.nightly import rest_nightly

pytestmark = pytest.mark.server

# A process that hangs at its end does so for 15 minutes.
EXITS_WITHIN_S = 30.0
SCRIPT = """
import sys, time
from holdfast.experiment.folder import trial_folder
from holdfast.syncer.stores import preflight
from holdfast.syncer.stores import generic
from holdfast.syncer.stores.s3 import client
preflight.preflight.__kwdefaults__["deadline_s"] = 1.0
preflight.probe.__kwdefaults__["deadline_s"] = 1.0
generic.LOOKUP_S = trial_folder._DEADLINE_S = 1.0
generic.ArrowStore._call.__defaults__ = (1.0,)
client.allowance_s = lambda size: 1.0
what, uri = sys.argv[1:]
if what == "fit":
    from holdfast import tune
    from holdfast.syncer.errors import StorageError
    try:
        tune.Tuner(lambda config: None, run_config=tune.RunConfig(storage_path=uri)).fit()
    except StorageError as error:
        print(error)
elif what == "list":
    from holdfast.syncer.errors import StorageError
    from holdfast.syncer.stores.location import Location
    try:
        trial_folder.list_folder(Location.resolve(uri, None, {}))
    except StorageError as error:
        print(error)
else:
    from holdfast.cli import main
    main([*what.split(), uri])
print(f"ended at {time.time()}")
"""


@contextmanager
def served(*, is_silent: bool) -> Iterator[int]:
    """A port where connections are accepted and nothing is answered, or where they are refused."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        if is_silent:
            listening.listen(64)
        yield listening.getsockname()[1]


def uri_of(scheme: str, port: int) -> str:
    if scheme == "gs":
        return f"gs://anonymous@bucket/x?scheme=http&endpoint_override=127.0.0.1%3A{port}"
    return (
        f"s3://bucket/x?endpoint_override=http://127.0.0.1:{port}"
        "&access_key=an-access-key&secret_key=a-secret-key"
    )


@pytest.mark.parametrize(
    ("what", "scheme", "is_silent"),
    rest_nightly(
        4,
        [
            ("fit", "gs", True),
            ("fit", "s3", True),
            ("ls", "gs", True),
            ("doctor preflight", "gs", False),
            ("fit", "gs", False),
            ("ls", "s3", True),
            ("list", "gs", True),
            ("doctor preflight", "gs", True),
            ("doctor preflight", "s3", True),
        ],
    ),
)
def test_the_process_ends_when_its_error_is_reported(
    what: str, scheme: str, is_silent: bool, tmp_path: Path
) -> None:
    with served(is_silent=is_silent) as port:
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, what, uri_of(scheme, port)],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
            env={**os.environ, "RAY_AIR_LOCAL_CACHE_DIR": str(tmp_path)},
            cwd=tmp_path,
        )
        ended = time.time()
    told, _, at = done.stdout.rpartition("ended at ")
    assert ended - float(at) < EXITS_WITHIN_S
    assert "bucket/x" in told + done.stderr
    assert "no answer" in told + done.stderr or "Could not connect" in told + done.stderr
    assert "Traceback" not in told + done.stderr


HUNG = """
import threading
from holdfast.__main__ import run
from holdfast.syncer.files.threads import call_and_wait
def hangs(): call_and_wait(threading.Event().wait, 0.01)
import atexit, holdfast.__main__
atexit.register(threading.Event().wait)
def main():
    print("told", end="")
    try:
        hangs()
    except TimeoutError:
        return 7
holdfast.__main__.main = main
run()
"""


def test_a_command_waits_for_no_library_that_waits_for_storage_at_exit() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HUNG], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (7, "told")
