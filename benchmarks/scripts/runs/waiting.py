"""Trials that wait while one of them reports: `waiting.py EXPERIMENT ALIVE COUNT`.

EXPERIMENT is restored and has ALIVE trials left. When all run, the first makes COUNT reports.
Prints this process's CPU seconds meanwhile, its RSS and each worker's USS, in bytes.
"""

import json
import os
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psutil

import holdfast
from holdfast import tune

experiment, alive, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])


def train(config: dict[str, Any]) -> None:
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(os.environ["MEETING"])
        line.sendall(f"{os.getpid()}\n".encode())
        asked = line.recv(16)
        for step in range(int(asked or 0)):
            tune.report({"loss": 0.5 * step, "acc": 0.25})
        if asked:
            line.sendall(b"done")
            line.recv(1)


class Meeting(threading.Thread):
    """The place where the trials meet; nothing in this process runs while they wait."""

    def __init__(self, path: Path) -> None:
        super().__init__(daemon=True)
        self.told: dict[str, Any] = {}
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(path))
        self._socket.listen(alive)

    def run(self) -> None:
        lines = [self._socket.accept()[0] for _ in range(alive)]
        pids = [int(line.recv(16)) for line in lines]
        self.told["rss"] = psutil.Process().memory_info().rss
        self.told["uss"] = [psutil.Process(pid).memory_full_info().uss for pid in pids]
        before_s = time.process_time()
        lines[0].sendall(str(count).encode())
        lines[0].recv(16)
        self.told["cpu_s"] = time.process_time() - before_s
        for line in lines:
            line.close()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "meeting")
        os.environ["MEETING"] = str(path)
        meeting = Meeting(path)
        meeting.start()
        holdfast.init(num_cpus=alive)
        grid = tune.Tuner.restore(experiment, train, param_space={"width": 1}).fit()
        if grid.num_errors:
            raise SystemExit(str(grid.errors[0]))
        meeting.join()
    print(json.dumps(meeting.told))


if __name__ == "__main__":
    main()
