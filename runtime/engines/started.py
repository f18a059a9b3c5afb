"""`python -m holdfast.runtime.engines.started MODULE ARGUMENT...` says on stdout that Python runs
it, and then does what `python -m MODULE ARGUMENT...` does.

An engine that holds the process's stdin and stdout waits for these bytes before it writes the
invitation. So whatever a login shell, a banner or a wrapper has printed before is no frame, and no
program but the agent reads the invitation. If stdout is a file, the engine finds them there.
"""

from __future__ import annotations

import os
import runpy
import sys
from contextlib import suppress

from holdfast.runtime.process_control import continue_without_parent

MODULE = "holdfast.runtime.engines.started"
# What is printed. The first byte cannot be typed, and no program prints it by accident.
SIGN = b"\x00holdfast agent\x00\n"
# The exit status of an agent that could not reach its controller, however long it tried.
UNREACHED = 69
# That of an agent that had workers, and whose controller is gone or was not heard for too long.
UNHEARD = 75
_NO_MODULE = "No module named 'holdfast"


def not_started(answer_s: float) -> str:
    """Why an agent is given up that has said nothing."""
    return (
        f"no agent has started within {answer_s:g} s. If it is only slow, allow more: start_s=... "
        f"of the cluster"
    )


def advised(text: str) -> str:
    """What Python has printed, with what the user can do if that is known."""
    if _NO_MODULE not in text:
        return text
    return (
        f"{text}. Install this version of holdfast there, or name the Python that has it "
        f"(python=...)"
    )


def main() -> None:
    module, *arguments = sys.argv[1:]
    continue_without_parent()
    # What a sitecustomize has printed would otherwise follow the sign, between frames.
    sys.stdout.flush()
    os.write(1, SIGN)
    with suppress(OSError):  # a pipe; in a file on a network file system it could be seen late
        os.fsync(1)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
