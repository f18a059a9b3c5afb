"""The message about other experiments that use the same machine. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.experiment.machine.fair_share import total_of
from holdfast.experiment.machine.members import Member

_SHOWN = 2


def crowding(own: Member, others: Sequence[Member]) -> str:
    """A line that names the others if all of them together use more than the machine has; "" if
    there is room for all, or if all take turns."""
    outside = [one for one in others if not (own.shares and one.shares)]
    if not outside:
        return ""
    everybody = [own, *others]
    total = total_of([one.sharer(str(number)) for number, one in enumerate(everybody)])
    for key, amount in total.items():
        used = sum(one.uses.get(key, 0) for one in everybody)
        if used > amount:
            return _text(own, outside, f"{used:g} of its {amount:g} {_plural(key, amount)}")
    return ""


def _text(own: Member, outside: Sequence[Member], crowded: str) -> str:
    named = " and ".join(map(str, outside[:_SHOWN]))
    more = len(outside) - _SHOWN
    named += f" and {more} more" if more > 0 else ""
    runs = "also run" if len(outside) > 1 else "also runs"
    which = "both" if len(outside) == 1 else "all"
    if own.shares:
        which = "that script" if len(outside) == 1 else "those scripts"
    elif all(one.shares for one in outside):
        which = "this script"
    return (
        f"{named} {runs} on this machine. Together they use {crowded} at once and slow each other "
        f"down. Call holdfast.init(share=True) in {which}, or set HOLDFAST_SHARE=1, and they take "
        f"turns"
    )


def _plural(key: str, amount: float) -> str:
    return f"{key}s" if key in ("CPU", "GPU") and amount != 1 else key
