"""`python -m benchmarks.quality [--only NAME ...] [--side SIDE ...] [--plots FOLDER] ...`."""

from __future__ import annotations

import sys

from benchmarks.quality.command import main

if __name__ == "__main__":
    main(sys.argv[1:])
