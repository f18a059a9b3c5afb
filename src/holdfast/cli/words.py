"""What several commands say of themselves in their help, and how they understand numbers."""

from __future__ import annotations

import argparse
import math

EXPERIMENT = (
    "the experiment's directory <storage_path>/<name>, or its URI such as "
    "s3://bucket/results/digits?endpoint_override=http://127.0.0.1:9000; credentials as for fit()"
)
TRIAL = "a trial's id, the beginning or end of one, or its number: 0, 1, ..."
CODES = "exit codes: 0 sound, or done; 1 something is wrong; 2 not understood, or not found"


def number(text: str) -> int:
    """How many: from 0 on. Raises ArgumentTypeError."""
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 on")
    return int(text)


def seconds(text: str) -> float:
    """More than none, and not for ever. Raises ArgumentTypeError."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return value
