"""A fake Google Cloud Storage on loopback for tests, which keeps its objects in memory."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import HTTPServer
from urllib.parse import quote

from holdfast.dataclass import dataclass
from tests.rig.storage.s3_server import served

BUCKET = "bucket"


@dataclass(frozen=True, slots=True, kw_only=True)
class GcsServer:
    """A server that runs, with an empty bucket named `bucket`."""

    endpoint: str
    pid: int

    def uri(self, path: str) -> str:
        """A URI of `bucket/prefix` for pyarrow, without credentials."""
        host = quote(self.endpoint.removeprefix("http://"), safe="")
        return f"gs://anonymous@{path}?scheme=http&endpoint_override={host}"


@contextmanager
def gcs_server() -> Iterator[GcsServer]:
    """gcp-storage-emulator: no credentials, no conditions. Raises RuntimeError if it does not
    start."""
    command = [sys.executable, "-c", f"from {__name__} import serve; serve()"]
    with served(command, {}) as (port, pid):
        yield GcsServer(endpoint=f"http://127.0.0.1:{port}", pid=pid)


def serve() -> None:
    """Main function of the server: chooses a port, prints it, and runs until it is ended."""
    from gcp_storage_emulator.handlers import buckets
    from gcp_storage_emulator.server import RequestHandler
    from gcp_storage_emulator.storage import Storage

    storage = Storage(use_memory_fs=True)
    buckets.create_bucket(BUCKET, storage)
    handler = type("Quiet", (RequestHandler,), {"log_message": lambda *_: None})
    server = _Server(("127.0.0.1", 0), partial(handler, storage))
    print(f"http://127.0.0.1:{server.server_port}", file=sys.stderr, flush=True)
    server.serve_forever()


class _Server(HTTPServer):
    """Handle one request at a time, as its storage requires; others wait."""

    request_queue_size = 128
