"""What may be said to `holdfast replay`."""

from __future__ import annotations

import argparse
from typing import Any

from holdfast.cli.completing import complete_experiment
from holdfast.cli.words import CODES, EXPERIMENT, number

_REPLAY = (
    "Tell what a run would have cost under another scheduler, or on other workers: its configs "
    "are gone through again, in virtual time, with the curves that were recorded of them. Nothing "
    "is changed, and none of your code is loaded."
)


def add_replay(rooms: Any) -> None:
    """replay, below the subparsers `rooms`."""
    command: argparse.ArgumentParser = rooms.add_parser(
        "replay",
        help="what a run would have cost under another scheduler, or on other workers",
        description=_REPLAY,
        epilog=CODES,
    )
    path = command.add_argument("path", metavar="EXPERIMENT", help=EXPERIMENT)
    path.completer = complete_experiment  # type: ignore[attr-defined]
    command.add_argument("--json", action="store_true", help="one JSON object, for scripts")
    command.add_argument(
        "--scheduler",
        metavar="NAME",
        default="fifo",
        help="asha, hyperband, ... as tune.create_scheduler() takes them (default: fifo)",
    )
    command.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="of the scheduler, such as max_t=81; the value is JSON, or else text; again for more",
    )
    command.add_argument(
        "--workers", type=number, metavar="N", help="trials at once (default: as many as were)"
    )
    command.add_argument("--metric", help="instead of the experiment's; a/b for a nested one")
    command.add_argument("--mode", choices=("max", "min"), help="instead of the experiment's")
    command.add_argument("--seed", type=int, default=0, metavar="S", help="of the scheduler")
