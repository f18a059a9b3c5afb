"""What the uploader's process keeps in memory over 10,000 checkpoints, while 5% of requests fail.

The uploader is a separate process, as in an experiment; its storage is a moto server on this
machine behind a proxy that breaks connections, loses answers, refuses and truncates. `rest` is the
number of entries in the containers of the uploader and its storage; `blocks` are Python's
allocations.

    python -m benchmarks.keeping [--checkpoints 10000] [--trials 40] [--calm] [--json out.json]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

from holdfast.syncer.stores.location import Location
from tests.rig.faults.ills import AtRandom, Ill, Plan, Well
from tests.rig.storage.keeping import Held, run
from tests.rig.storage.proxy import Proxy
from tests.rig.storage.s3_server import make_bucket, moto_server

_POINTS = 10
_ILLS = (
    Ill.RESET,
    Ill.ANSWER_LOST,
    Ill.ERROR,
    Ill.SLOW_DOWN,
    Ill.TRUNCATED,
    Ill.CORRUPTED,
    Ill.PHANTOM,
    Ill.SILENCE,
)
_SHOWN = (
    "checkpoints",
    "rss_kib",
    "blocks",
    "descriptors",
    "sockets",
    "threads",
    "tasks",
    "files",
)


def keep(root: str, uri: str, checkpoints: int, trials: int) -> None:
    """Run in the uploader's process: prints a line about its memory at each point."""
    location = Location.resolve(uri, None, {})

    def tell(held: Held) -> None:
        print(json.dumps(held.told()), flush=True)

    run(Path(root), location, tell, trials=trials, checkpoints=checkpoints, points=_POINTS)


def measure(checkpoints: int, trials: int, plan: Plan) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder, moto_server() as server:
        make_bucket(server, "bench")
        proxy = Proxy(server.endpoint, plan)
        uri = server.uri("bench/kept").replace(server.endpoint, proxy.endpoint)
        # A request without an answer costs a second, not a minute.
        asked = json.dumps([folder, f"{uri}&request_timeout=1", checkpoints, trials])
        code = "import sys, json, benchmarks.keeping as k; k.keep(*json.loads(sys.argv[1]))"
        held = []
        command = [sys.executable, "-c", code, asked]
        with closing(proxy), subprocess.Popen(command, stdout=subprocess.PIPE) as uploader:
            assert uploader.stdout is not None
            for line in uploader.stdout:
                held.append(json.loads(line))
                print(row(held[-1]), flush=True)
    if uploader.returncode:
        raise SystemExit(f"the uploader's process ended with {uploader.returncode}")
    print(f"{len(proxy.log):,} requests, of which {len(proxy.struck):,} failed:")
    for ill, count in proxy.injected.most_common():
        print(f"{count:7,} x {ill.value}")
    return held


def row(held: dict[str, Any]) -> str:
    rest = sum(held["entries"].values())
    return "  ".join(f"{number:11,}" for number in (*(held[name] for name in _SHOWN), rest))


def grown(held: list[dict[str, Any]]) -> list[str]:
    """A line for each container with more entries than at the first point."""
    first, last = held[0]["entries"], held[-1]["entries"]
    return [
        f"{name}: {first.get(name, 0):,} entries became {count:,}"
        for name, count in last.items()
        if count > first.get(name, 0)
    ]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--checkpoints", type=int, default=10_000)
    arguments.add_argument("--trials", type=int, default=40)
    arguments.add_argument("--calm", action="store_true", help="without faults")
    arguments.add_argument("--json", type=Path)
    given = arguments.parse_args()
    plan: Plan = Well() if given.calm else AtRandom(ills=_ILLS, probability=0.05, seed=17)
    print("  ".join(f"{name:>11}" for name in (*_SHOWN, "rest")))
    held = measure(given.checkpoints, given.trials, plan)
    print(*grown(held), sep="\n")
    if given.json is not None:
        given.json.write_text(json.dumps(held, indent=1))


if __name__ == "__main__":
    main()
