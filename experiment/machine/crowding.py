"""The message about other experiments that use the same machine. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.experiment.machine.fair_share import total_of
from holdfast.experiment.machine.members import Member
from holdfast.names import printable

_LONGEST_NAME = 30


def crowding(own: Member, others: Sequence[Member], found: Mapping[str, float]) -> str:
    """At most two lines of a terminal that name another one if all of them together use more than
    the machine has; "" if there is room for all, or if all take turns.

    `found` is what the machine has unless a script's `init()` says otherwise.
    """
    outside = [one for one in others if not (own.shares and one.shares)]
    if not outside:
        return ""
    everybody = [own, *others]
    total = total_of([one.sharer(str(number)) for number, one in enumerate(everybody)])
    for key, amount in total.items():
        used = sum(one.uses.get(key, 0) for one in everybody)
        if used > amount:
            said = ""
            if found.get(key, amount) != amount:
                whose = "init's" if own.total.get(key) == amount else "from another script's init:"
                said = f" ({whose} num_{key.lower()}s)"
            return _text(own, outside, f"{used:g} {_plural(key, used)} of {amount:g}{said}")
    return ""


def _text(own: Member, outside: Sequence[Member], crowded: str) -> str:
    first, more = outside[0], len(outside) - 1
    name = printable(first.experiment)
    name = name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
    named = f"experiment '{name}' (process {first.pid})" if name else f"process {first.pid}"
    which = "all scripts" if more else "both scripts"
    if own.shares:
        which = "those scripts" if more else "that script"
    elif all(one.shares for one in outside):
        which = "this script"
    return (
        f"{named} {f'and {more} more run' if more else 'runs'} here, too: together they use "
        f"{crowded}. To take turns: HOLDFAST_SHARE=1 for {which}"
    )


def _plural(key: str, amount: float) -> str:
    return f"{key}s" if key in ("CPU", "GPU") and amount != 1 else key
