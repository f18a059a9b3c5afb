"""`holdfast.train.collective`: the ranks of a trainer wait for each other, or share a value."""

from __future__ import annotations

import base64
from typing import Any, TypeVar

from holdfast.experiment.worker.rank_session import current_rank

T = TypeVar("T")
# The text form of this is what the controller passes on at most (`claims.LONGEST_GATHERED`).
LARGEST_BYTES = 64 << 10


def barrier() -> None:
    """Wait until every rank has called this.

    Every rank must call it equally often. A rank that keeps the others waiting for longer than
    HOLDFAST_BARRIER_TIMEOUT_S, or that reports or returns meanwhile, ends the attempt with an
    error that names it. Raises NotInTrial outside the loop of a trainer.
    """
    current_rank("train.collective.barrier()").gather("")


def broadcast_from_rank_zero(data: T) -> T:
    """Rank 0's `data`, in every rank: a barrier, as `barrier()` is.

    It is pickled: at most 64 KiB, else ValueError. Larger values go through `holdfast.put()`,
    whose reference is small, or through torch. Raises what pickling raises, and NotInTrial outside
    the loop of a trainer.
    """
    session = current_rank("train.collective.broadcast_from_rank_zero()")
    texts = session.gather("" if session.assignment.rank else _as_text(data))
    shared: T = _from_text(texts[0])
    return shared


def _as_text(data: Any) -> str:
    import cloudpickle

    pickled: bytes = cloudpickle.dumps(data)
    if len(pickled) > LARGEST_BYTES:
        raise ValueError(
            f"broadcast_from_rank_zero() takes at most {LARGEST_BYTES:,} bytes, and this "
            f"{type(data).__name__} has {len(pickled):,}: broadcast a holdfast.put() reference "
            f"instead"
        )
    return base64.b64encode(pickled).decode()


def _from_text(text: str) -> Any:
    """Rank 0 of this trial has pickled it, and runs the same code. The controller passes the text
    on and does not unpickle it."""
    import pickle

    return pickle.loads(base64.b64decode(text))
