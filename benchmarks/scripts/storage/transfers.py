"""Shared by `upload.py` and `download.py`: what a transfer costs this process, and a client."""

import os
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

AT_ONCE = 16
told: dict[str, float] = {}


@contextmanager
def measured() -> Iterator[None]:
    """Put the seconds and CPU seconds of what it encloses into `told`."""
    before = resource.getrusage(resource.RUSAGE_SELF)
    began_s = time.monotonic()
    yield
    told["wall_s"] = time.monotonic() - began_s
    after = resource.getrusage(resource.RUSAGE_SELF)
    told["cpu_s"] = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def peak() -> int:
    """The largest resident memory of this process in bytes; getrusage includes its parent's."""
    lines = Path("/proc/self/status").read_text().split("\n")
    return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])


def crt_transfers(endpoint: str) -> Any:
    """What boto3's transfers use with `preferred_transfer_client="crt"`, which accept no plain
    http."""
    import botocore.session
    from botocore.credentials import Credentials
    from s3transfer import crt

    keys = Credentials(os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"])
    client = crt.create_s3_crt_client(
        "us-east-1",
        crt_credentials_provider=crt.BotocoreCRTCredentialsWrapper(
            keys
        ).to_crt_credentials_provider(),
        use_ssl=False,
    )
    where = {"region_name": "us-east-1", "endpoint_url": endpoint}
    requests = crt.BotocoreCRTRequestSerializer(botocore.session.get_session(), where)
    return crt.CRTTransferManager(client, requests)
