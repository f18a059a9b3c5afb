"""`python -m holdfast`: the command line, where the script `holdfast` is not on the PATH."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import NoReturn

from holdfast.cli import main


def run() -> NoReturn:
    """The command as a process of its own, which ends when it has said what it has to say.

    pyarrow waits at exit for requests to S3 that were given up, which may take as long as they do.
    """
    code = main()
    threads = sys.modules.get("holdfast.syncer.files.threads")
    if threads is None or not threads.busy():
        sys.exit(code)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # nobody reads it any more
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    run()
