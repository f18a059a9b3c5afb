from __future__ import annotations

import sys

from benchmarks.with_ray.command import main

if __name__ == "__main__":
    main(sys.argv[1:])
