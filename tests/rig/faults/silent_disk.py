"""A disk that does not answer: each fsync waits at a gate, as it hangs on a dead NFS server.

`environ_for` makes every Python process of these roles wait at the gate `GATE` in each fsync below
`root`. A test holds the gate from the moment when the disk should stop answering, gets a mark at
the first call, and may open it again.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.rig import ROOT
from tests.rig.faults.deaths import HOOK, role_here

VARIABLE: Final = "HOLDFAST_TEST_SILENCE"
GATE: Final = "disk"


def environ_for(root: Path, roles: Sequence[str]) -> dict[str, str]:
    return {
        VARIABLE: json.dumps([str(root), list(roles)]),
        "PYTHONPATH": f"{HOOK}{os.pathsep}{ROOT}",
    }


def install(environ: Mapping[str, str]) -> None:
    """Called by `sitecustomize`."""
    if VARIABLE not in environ:
        return
    root, roles = json.loads(environ[VARIABLE])
    if role_here() in roles:
        for name in ("fsync", "fdatasync"):
            setattr(os, name, _waiting(getattr(os, name), root))


def _waiting(perform: Callable[[Any], None], root: str) -> Callable[[Any], None]:
    def forced(file: Any) -> None:
        fd = file if isinstance(file, int) else file.fileno()
        if f"{os.readlink(f'/proc/self/fd/{fd}')}/".startswith(f"{root}/"):
            _wait()
        perform(fd)

    return forced


def _wait() -> None:
    # Imported by who waits: each process of a campaign imports this module at its start.
    from tests.rig.script import FOLDER, mark, wait_at

    gate = os.open(Path(os.environ[FOLDER], f"gate-{GATE}"), os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(gate, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        mark("silent", role_here())
        wait_at(GATE)
    finally:
        os.close(gate)
