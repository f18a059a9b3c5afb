"""The script's own random numbers, those of `random` and `numpy.random`: whether it has seeded
them, and what a run takes from them."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

_LOCK: Final = threading.RLock()
_BITS: Final = 63
_TWISTER: Final = "MT19937"
_WORDS: Final = 624  # of the Mersenne twister, which makes as many new ones at a time
# How often `random` may have made new words since the import, without having been seeded.
_TURNS: Final = 1000
_AT_IMPORT: Final = random.getstate()


def drawn_seed() -> int | None:
    """A number of 63 bits from the generators that the script has seeded; None if it seeded none.

    Takes one number from each of them, so that a second run of the script gets the same number
    and a second `fit()` another. A call of `random.seed` counts if it came after the import of
    holdfast, one of `numpy.random.seed` at any time.
    """
    drawn = []
    numpy = sys.modules.get("numpy")
    if numpy is not None and _is_numpy_seeded(numpy):
        drawn.append(int(numpy.random.randint(0, 2**_BITS - 1, dtype=numpy.int64)))
    if _is_random_seeded():
        drawn.append(random.getrandbits(_BITS))
    if len(drawn) < 2:
        return drawn[0] if drawn else None
    return random.Random("/".join(map(str, drawn))).getrandbits(_BITS)


@contextmanager
def seeded_numbers(name: str) -> Iterator[None]:
    """Seed `random` and `numpy.random` with `name` inside the block, and restore their states
    afterwards, so that the user's functions draw the same again."""
    with _LOCK:
        state, numpy = random.getstate(), sys.modules.get("numpy")
        random.seed(name)
        try:
            if numpy is None or numpy.random.get_state(legacy=False)["bit_generator"] != _TWISTER:
                yield
            else:
                with seeded_numpy(random.Random(name).getrandbits(32)):
                    yield
        finally:
            random.setstate(state)


@contextmanager
def seeded_numpy(seed: int) -> Iterator[None]:
    """Seed NumPy's global random numbers inside the block, and restore their state afterwards.

    Some libraries use no others.
    """
    import numpy as np

    with _LOCK:
        state = np.random.get_state()
        # Not np.random.seed(), after which it would count as seeded by the script.
        np.random.set_state(np.random.RandomState(seed).get_state())
        try:
            yield
        finally:
            np.random.set_state(state)


def _is_numpy_seeded(numpy: Any) -> bool:
    """True if `numpy.random.seed` has been called: a generator loses its seed sequence then."""
    bits = getattr(numpy.random, "get_bit_generator", None)  # since NumPy 1.24
    return bits is None or getattr(bits(), "seed_seq", None) is None


def _is_random_seeded() -> bool:
    """True if `random` no longer continues its numbers of the time of the import."""
    known, words = random.Random(), random.getstate()[1][:_WORDS]
    known.setstate(_AT_IMPORT)
    for _ in range(_TURNS):
        if known.getstate()[1][:_WORDS] == words:
            return False
        known.getrandbits(32 * _WORDS)
    return True
