"""`python -m holdfast.agent - | FILE`: the agent of a node. Engines start it; users need not.

The invitation is on its stdin, or in FILE.
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the agent, and end this process without waiting for threads."""
    from holdfast.experiment.nodes.agent_main import serve
    from holdfast.experiment.nodes.keeper import KeeperService

    if len(sys.argv) != 2:
        sys.exit("usage: python -m holdfast.agent - | FILE")
    status = serve(sys.argv[1], KeeperService)
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    main()
