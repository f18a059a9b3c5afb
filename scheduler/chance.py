"""Reproducible random numbers: they depend only on a name."""

from __future__ import annotations

from hashlib import blake2b


class Chance:
    """A source of numbers in [0, 1), like `random.Random`, determined by a name.

    Numbers for different names are independent, so no state must be kept between two decisions:
    `Chance(f"{seed}/{trial_id}/{iteration}")`.
    """

    __slots__ = ("_count", "_encoded", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self._encoded = name.encode()
        self._count = 0

    def random(self) -> float:
        """The next number; it has 53 bits."""
        self._count += 1
        digest = blake2b(b"%d/%s" % (self._count, self._encoded), digest_size=8).digest()
        return (int.from_bytes(digest, "big") >> 11) * 2.0**-53
