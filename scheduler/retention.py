"""Decides which checkpoints of a trial are superseded."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from holdfast.plain_numbers import is_number
from holdfast.trial.checkpoint import CheckpointRecord
from holdfast.trial.config import CheckpointConfig
from holdfast.trial.stopper import lookup


def score_of(row: Mapping[str, Any], attribute: str | None) -> float | None:
    """The value that ranks a checkpoint; None if it is missing, not finite or not a number.

    An infinite value has overflowed or diverged: as the best one it could never be beaten.
    """
    value = lookup(row, attribute) if attribute else None
    return float(value) if is_number(value) and math.isfinite(value) else None


def ranked(
    checkpoints: Sequence[CheckpointRecord], config: CheckpointConfig
) -> list[CheckpointRecord]:
    """Best first; checkpoints without a score last; ties go to the newer one."""
    sign = -1.0 if config.checkpoint_score_order == "min" else 1.0

    def key(checkpoint: CheckpointRecord) -> tuple[bool, float, int]:
        score = checkpoint.score
        return (score is not None, sign * (score or 0.0), checkpoint.index)

    return sorted(checkpoints, key=key, reverse=True)


def superseded(
    checkpoints: Sequence[CheckpointRecord],
    config: CheckpointConfig,
    *,
    needed: Collection[int] = (),
) -> list[CheckpointRecord]:
    """The committed checkpoints that may be deleted: not the newest, and not the best
    `num_to_keep`.

    `checkpoints` are in the order of their reports. The checkpoint that the running attempt
    started from is the newest until the attempt has committed one, so it stays until then.
    Checkpoints whose indices are `needed`, for example by a trial that will start from one, stay
    as well and do not count among those to keep. Without a score attribute every score is None and
    only age decides.
    """
    if config.num_to_keep is None or len(checkpoints) <= config.num_to_keep:
        return []
    committed = [checkpoint for checkpoint in checkpoints if checkpoint.committed]
    if len(committed) <= config.num_to_keep:
        return []
    by_age = config.checkpoint_score_attribute is None
    best = committed[::-1] if by_age else ranked(committed, config)
    kept = {committed[-1].index, *needed}
    kept |= {checkpoint.index for checkpoint in best[: config.num_to_keep]}
    # Another machine cannot read a checkpoint that was not uploaded: keep the newest that was.
    uploaded = [known for known in committed if not known.stays_here]
    if uploaded:
        kept.add(uploaded[-1].index)
    return [checkpoint for checkpoint in committed if checkpoint.index not in kept]
