"""While a hostile peer attacks the controller's port, the messages of the others come and go."""

from __future__ import annotations

import asyncio
import os
import sys

import pytest

from holdfast.runtime.fleet.facts import FleetSettings
from tests.rig import ROOT
from tests.rig.nodes.attacker import ATTACKS
from tests.rig.nodes.fleets import Agents, open_fleet
from tests.rig.workers.launcher_contract import OBEYING, ask, start
from tests.rig.workers.processes import PATIENCE_S

pytestmark = [pytest.mark.anyio, pytest.mark.process]

SETTINGS = FleetSettings(grace_s=2.0, cause_s=0.02, certificate_s=0.5, lease_s=PATIENCE_S)


async def test_no_attack_holds_up_the_messages_of_others() -> None:
    async with open_fleet(Agents(os.environ), SETTINGS) as (fleet, log, _):
        await fleet.open(OBEYING, b"")
        worker, heard = start(fleet)
        for attack in ATTACKS:
            invitation = fleet.invite("here", over_pipe=False)
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.rig.nodes.attacker", attack),
                cwd=ROOT,
                stdin=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            attacking = asyncio.ensure_future(process.communicate(invitation.secret))
            rounds = 0
            while not attacking.done():
                # One attack may take a second of CPU, which is a minute of a busy machine.
                async with asyncio.timeout(4 * PATIENCE_S):
                    assert await ask(worker, heard, "echo", rounds) == rounds, attack
                rounds += 1
            assert process.returncode == 0, attacking.result()
        causes = [await log.until("left", name) for name in [*log.nodes][1:]]
        assert len(causes) == 5
        assert "it has more than 1,048,576 lists and maps" in causes[-2][-1]
        assert "a frame must be a list" in causes[-1][-1]
        assert len([text for text in log.told if "mind the gap" in text]) == 100
        # It would have given up if no beat had come for a lease.
        (honest, *_) = log.nodes
        assert honest in {one.node for one in fleet.last_messages()}
