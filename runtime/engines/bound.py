"""`python -m holdfast.runtime.engines.bound PID COMMAND...` runs the command in its place, and
binds it to its parent, whose pid is PID: the kernel kills it if the parent's thread ends (Linux).
"""

from __future__ import annotations

import os
import sys

from holdfast.runtime.process_control import die_with_parent

MODULE = "holdfast.runtime.engines.bound"
# As a shell says that a command cannot be run.
_CANNOT_RUN = 127


def main() -> None:
    pid, *command = sys.argv[1:]
    die_with_parent(int(pid))
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"{command[0]} cannot be run: {error}", file=sys.stderr)
        sys.exit(_CANNOT_RUN)


if __name__ == "__main__":
    main()
