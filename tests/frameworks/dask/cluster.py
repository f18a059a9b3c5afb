"""A Dask cluster of processes, whose parts a test kills."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

from distributed.security import Security

from holdfast.runtime.transport import readable
from tests.rig.workers.processes import PATIENCE_S

ROOT = Path(__file__).parent.parent.parent.parent


class Cluster:
    """A scheduler with TLS, unless `protocol` is tcp, and workers with addresses of loopback."""

    def __init__(self, folder: Path, protocol: str = "tls") -> None:
        self._folder = folder
        self._protocol = protocol
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.security = Security.temporary() if protocol == "tls" else None
        self.address = ""
        self.environ = dict(os.environ)

    def __enter__(self) -> Self:
        self.address = self._start("scheduler", "scheduler", [], host="127.0.0.1", port=0)
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self.processes):
            self.signal(name, signal.SIGKILL)

    def client_environ(self) -> dict[str, str]:
        """Dask's own settings for a client of this cluster."""
        found = self._certificates("client")
        names = {"tls_ca_file": "CA_FILE", "tls_client_cert": "CLIENT__CERT"}
        names["tls_client_key"] = "CLIENT__KEY"
        return {
            f"DASK_DISTRIBUTED__COMM__TLS__{name}": found[field] for field, name in names.items()
        }

    def add_worker(self, name: str, host: str, **options: Any) -> str:
        """Add a worker with one thread. Returns its address."""
        options |= {"host": host, "name": name, "nthreads": 1}
        folder = str(self._folder / name)
        return self._start(name, "worker", [self.address], **options, local_directory=folder)

    def logs(self) -> str:
        """What its parts have logged."""
        return "".join(path.read_text() for path in self._folder.glob("*.log"))

    def signal(self, name: str, signum: signal.Signals) -> None:
        """End a part of the cluster by a signal, and wait for its end."""
        process = self.processes.pop(name)
        process.send_signal(signum)
        process.communicate(timeout=PATIENCE_S)

    def _start(self, part: str, kind: str, arguments: list[str], **options: Any) -> str:
        """Start a part. Returns its address when it has one."""
        security = self._certificates(part) if self.security else {}
        options["protocol"] = self._protocol
        told = {"security": security, "arguments": arguments, "options": options}
        with open(self._folder / f"{part}.log", "wb") as log:
            process = self.processes[part] = subprocess.Popen(
                [sys.executable, "-m", "tests.frameworks.dask.part", kind, json.dumps(told)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=ROOT,
                env=self.environ,
            )
        assert process.stdout is not None
        assert readable(process.stdout.fileno(), PATIENCE_S), f"{part} does not start"
        address = process.stdout.readline().decode().strip()
        assert address, (self._folder / f"{part}.log").read_text()
        return address

    def _certificates(self, part: str) -> dict[str, Any]:
        """Files with the certificates: the cluster's own are in memory."""
        role = part if part in {"scheduler", "client"} else "worker"
        found: dict[str, Any] = {"require_encryption": True}
        for field in ("tls_ca_file", f"tls_{role}_cert", f"tls_{role}_key"):
            found[field] = str(self._folder / field)
            Path(found[field]).write_text(getattr(self.security, field))
        return found
