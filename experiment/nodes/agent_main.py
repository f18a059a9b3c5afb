"""The main function of an agent: joins its core with what a node keeps."""

from __future__ import annotations

import asyncio
import os
import sys

import uvloop

from holdfast.runtime.engines.started import UNHEARD, UNREACHED
from holdfast.runtime.errors import RuntimeFault, Unheard
from holdfast.runtime.fleet.agent import MakeService, run_agent
from holdfast.runtime.fleet.facts import HostFacts, detect_total, gpu_names_of, own_address
from holdfast.runtime.fleet.handshake import NotReached, call, read_invitation
from holdfast.runtime.fleet.scratch import scratch_folder
from holdfast.syncer.files import threads

# Where an agent makes its scratch folder; the folder for temporary files without it.
SCRATCH_ROOT = "HOLDFAST_NODE_SCRATCH"


def serve(make_service: MakeService) -> int:
    """Serve the controller whose invitation is on stdin. Returns the exit status."""
    status = 1
    try:
        why = _serve(make_service)
    except (OSError, RuntimeFault) as error:
        why = str(error)
        if isinstance(error, NotReached):
            status = UNREACHED
        elif isinstance(error, Unheard):
            status = UNHEARD
    if why:
        print(f"holdfast agent: {why}", file=sys.stderr)
    return status if why else 0


def _serve(make_service: MakeService) -> str:
    invited = read_invitation()
    found = detect_total()
    facts = HostFacts(resources=found, gpus=gpu_names_of(int(found.get("GPU", 0))))
    with scratch_folder(os.environ.get(SCRATCH_ROOT, "")) as folder:
        called = call(invited, own_address(os.environ))
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(
                run_agent(invited, called, folder, facts, make_service, threads.call)
            )
