"""One part of a Dask cluster: `part.py scheduler|worker ARGUMENTS`, as JSON. It prints its
address, and ends with SIGTERM in order, or with its stdin."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from typing import Any

import dask.config
from distributed import Scheduler, Worker
from distributed.security import Security

KINDS = {"scheduler": Scheduler, "worker": Worker}


async def main(kind: str, security: Any, arguments: list[Any], options: dict[str, Any]) -> None:
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, over.set)
    loop.add_reader(0, over.set)
    secured = {"security": Security(**security)} if security else {}
    async with KINDS[kind](*arguments, **options, **secured, dashboard=False) as part:
        print(part.address, flush=True)
        await over.wait()


if __name__ == "__main__":
    dask.config.set(
        {
            "distributed.diagnostics.nvml": False,
            "distributed.admin.system-monitor.gil.enabled": False,
        }
    )
    told = json.loads(sys.argv[2])
    asyncio.run(main(sys.argv[1], told["security"], told["arguments"], told["options"]))
