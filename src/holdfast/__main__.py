"""`python -m holdfast`: the command line, if the script `holdfast` is not on the PATH."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import NoReturn

from holdfast.cli import main


def run() -> NoReturn:
    """Run the command and end the process right after its output.

    At exit, pyarrow would wait for abandoned requests to S3, which may take long.
    """
    code = main()
    threads = sys.modules.get("holdfast.syncer.files.threads")
    if threads is None or not threads.busy():
        sys.exit(code)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # the reader has closed the pipe
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    run()
