"""One process by fork per task, one message back: `bare_processes.py COUNT CONCURRENCY [MODULE]`.

CONCURRENCY tasks run at once; MODULE is imported first.
"""

import json
import sys
import time
from collections import deque
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess

count, concurrency = int(sys.argv[1]), int(sys.argv[2])
USED = [import_module(name) for name in sys.argv[3:]]
_fork = get_context("fork")


def task(answer: Connection) -> None:
    answer.send(["report", {"x": len(USED)}])
    answer.close()


def start() -> tuple[ForkProcess, Connection]:
    ours, theirs = _fork.Pipe(duplex=False)
    process = _fork.Process(target=task, args=(theirs,))
    process.start()
    theirs.close()
    return process, ours


def end(process: ForkProcess, answer: Connection) -> float:
    answer.recv()
    process.join()
    answer.close()
    return time.time()


def main() -> None:
    began_s = time.time()
    running: deque[tuple[ForkProcess, Connection]] = deque()
    ends = []
    for _ in range(count):
        if len(running) == concurrency:
            ends.append(end(*running.popleft()))
        running.append(start())
    while running:
        ends.append(end(*running.popleft()))
    print(json.dumps({"ends": ends, "all_s": ends[-1] - began_s}))


if __name__ == "__main__":
    main()
