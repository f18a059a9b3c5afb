"""`python benchmarks/run.py [--only NAME ...] [--json FILE] [--quick] [--long] [--runs N]`."""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> None:
    # The folder of this file is on the path; the package that it is part of lies one above.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    from benchmarks.suite import main as suite

    suite(sys.argv[1:])


if __name__ == "__main__":
    main()
