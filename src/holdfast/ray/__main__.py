"""`python -m holdfast.ray script.py`: the same as `holdfast ray script.py`."""

from __future__ import annotations

import sys

from holdfast.cli import main

if __name__ == "__main__":
    sys.exit(main(["ray", *sys.argv[1:]]))
