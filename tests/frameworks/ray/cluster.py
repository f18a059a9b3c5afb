"""A Ray cluster of processes, whose nodes a test adds and kills."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from holdfast.runtime.transport import readable
from tests.rig.workers.processes import PATIENCE_S

ROOT = Path(__file__).parent.parent.parent.parent
# Ray starts a dozen processes.
START_S = 120.0


class Cluster:
    """A head node and the nodes that are added, all on loopback; with TLS if it `is_secure`."""

    def __init__(
        self, folder: Path, *, is_secure: bool = True, client_port: int | None = None
    ) -> None:
        """`client_port` is that of a server for clients from other machines, if there is one."""
        self.folder = folder
        self._arguments = [] if client_port is None else [str(client_port)]
        self.environ = {
            **os.environ,
            "RAY_TMPDIR": str(folder),
            "RAY_USAGE_STATS_ENABLED": "0",
            "PYTHONPATH": str(ROOT),  # of the fake agent
        }
        self.security = certificates(folder) if is_secure else {}
        self.environ |= self.security
        self.address = self.head = ""

    def __enter__(self) -> Self:
        with open(self.folder / "cluster.log", "wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.frameworks.ray.part", *self._arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=self.environ,
                cwd=ROOT,
            )
        try:
            self.address, self.head = self._answer().split()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._process.communicate(timeout=START_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate(timeout=PATIENCE_S)

    def add(self, resources: Mapping[str, float] | None = None) -> str:
        """Add a node. Returns its id."""
        return self._order("add", json.dumps(resources or {}))

    def kill(self, node: str) -> None:
        """Kill a node, as when its machine loses power."""
        self._order("kill", node)

    def drain(self, node: str) -> None:
        """Tell Ray that a node will be preempted."""
        self._order("drain", node)

    def kill_gcs(self) -> None:
        self._order("kill-gcs", "now")

    def _order(self, *words: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(words).encode() + b"\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> str:
        stdout = self._process.stdout
        assert stdout is not None
        assert readable(stdout.fileno(), START_S), "Ray does not answer"
        line = stdout.readline().decode().strip()
        assert line, (self.folder / "cluster.log").read_text()
        return line


def certificates(folder: Path) -> dict[str, str]:
    """The variables of Ray for a certificate of loopback, which is its own authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "the cluster of a test")])
    names = x509.SubjectAlternativeName(
        [x509.IPAddress(ip_address(address)) for address in ("127.0.0.1", "127.0.0.2")]
    )
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(names, critical=False)
        .sign(key, hashes.SHA256())
    )
    (folder / "certificate.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return {
        "RAY_USE_TLS": "1",
        "RAY_TLS_SERVER_CERT": str(folder / "certificate.pem"),
        "RAY_TLS_SERVER_KEY": str(folder / "key.pem"),
        "RAY_TLS_CA_CERT": str(folder / "certificate.pem"),
    }
