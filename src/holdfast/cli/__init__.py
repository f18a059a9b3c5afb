"""The command `holdfast`. Each subcommand is imported on first use, so that `--help` is fast."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Perform what the arguments (those of the process) say; returns the exit code.

    0: sound, or done. 1: something is wrong. 2: it could not be understood or found. 130: it was
    interrupted. 141: nobody reads its output any more.
    """
    from holdfast.cli.arguments import parse

    given = parse(sys.argv[1:] if arguments is None else arguments)
    from holdfast.cli.commands import run

    return run(given)
