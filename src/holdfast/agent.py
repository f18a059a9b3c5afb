"""`python -m holdfast.agent -`: the agent of a node. Engines start it; users need not.

The invitation is on its stdin.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import NoReturn


def main() -> NoReturn:
    """Run the agent, and end this process without waiting for threads."""
    from holdfast.experiment.nodes.agent_main import serve
    from holdfast.experiment.nodes.uploader import NodeUploader
    from holdfast.runtime.process_control import name_process

    if sys.argv[1:] != ["-"]:
        sys.exit("usage: python -m holdfast.agent -")
    with suppress(OSError):
        name_process("agent")  # its command line stays, by which users find it
    status = serve(NodeUploader)
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    main()
