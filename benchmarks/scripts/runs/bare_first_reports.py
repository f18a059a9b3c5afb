"""The same work in bare forks of a process that has everything loaded: `bare_first_reports.py
LIBRARY COUNT`. Prints the same values for each fork."""

from __future__ import annotations

import gc
import json
import os
import sys
from contextlib import suppress
from importlib import import_module
from typing import Any

works: Any = import_module("works")  # of this folder
library, count = sys.argv[1], int(sys.argv[2])


def main() -> None:
    works.quiet()
    import_module(library)
    for name in in_a_fork(lambda: (works.timed(library, None), list(sys.modules))[1]):
        if name not in sys.modules:
            with suppress(Exception):
                import_module(name)
    gc.collect()
    gc.freeze()
    print(json.dumps([in_a_fork(lambda: works.timed(library, None)) for _ in range(count)]))


def in_a_fork(work: Any) -> Any:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        with os.fdopen(writing, "w") as answer:
            answer.write(json.dumps(work()))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        told = answer.read()
    os.waitpid(pid, 0)
    return json.loads(told)


if __name__ == "__main__":
    main()
