"""A script that a test kills: it opens an engine and prints, as one line each, the pids of its
processes once they exist, and of its agents once they have joined.

Its argument is JSON: the hosts, the command of ssh, and how many agents it waits for.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys

from holdfast.runtime.engines.ssh import SSHEngine
from tests.rig import ROOT
from tests.rig.nodes.engine_host import AGENT, fake_host


async def main(hosts: list[str], ssh: list[str], count: int) -> None:
    python = ("env", f"PYTHONPATH={ROOT}", sys.executable)
    engine = SSHEngine(hosts, python=python, ssh=ssh, module=AGENT)
    async with fake_host() as host:
        await engine.open(host)
        engine.want("ssh", len(hosts))
        agents = await host.agents(count)
        print(json.dumps([process.pid for process in engine.processes()]), flush=True)
        print(json.dumps([link.facts["pid"] for link in agents]), flush=True)
        await asyncio.sleep(600)


if __name__ == "__main__":
    os.chdir("/")
    asyncio.run(main(*json.loads(sys.argv[1])))
