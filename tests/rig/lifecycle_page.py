"""docs/lifecycle.md, generated from the table that the code reads.

python -m tests.rig.lifecycle_page > docs/lifecycle.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from holdfast.trial.events import TrialEvent
from holdfast.trial.lifecycle import TABLE
from holdfast.trial.trial import Status
from tests.rig.scheduler.samples import TRIAL_EVENTS, trial_in

_HEAD = """# The life of a trial

A trial's status changes only by an event that has a row in the table `TABLE` of
`holdfast.trial.lifecycle`. An event without a row is impossible in that status and raises
`InvalidTransition`. `python -m tests.rig.lifecycle_page` writes this page, and a test compares
it with the table.
"""


def page() -> str:
    """The whole page as Markdown."""
    parts = [_HEAD, "## As a diagram\n", diagram(), _unmoved(), "## As a table\n", table()]
    return "\n".join([*parts, "## The events\n", *_meanings(), ""])


def diagram() -> str:
    """Mermaid: an arrow for each change of status, named by the events that cause it."""
    lines = ["```mermaid", "stateDiagram-v2", "    [*] --> PENDING: Suggested"]
    lines += [
        f"    {status} --> {after}: {', '.join(names)}"
        for (status, after), names in _arrows().items()
    ]
    lines += [f"    {status} --> [*]" for status in Status if status.is_final]
    return "\n".join([*lines, "```", ""])


def table() -> str:
    """Markdown: a row for each event, a column for each status, in it the status that follows."""
    header = "| | " + " | ".join(Status) + " |"
    rule = "|---" * (len(Status) + 1) + "|"
    rows = [
        f"| {type(event).__name__} | "
        + " | ".join(_cell(status, event) for status in Status)
        + " |"
        for event in TRIAL_EVENTS
    ]
    return "\n".join([header, rule, *rows, ""])


def _after(status: Status, event: TrialEvent) -> Status | None:
    """The status that follows; None where the event is impossible."""
    row = TABLE.get((status, type(event)))
    return None if row is None else row(trial_in(status), event).status


def _cell(status: Status, event: TrialEvent) -> str:
    after = _after(status, event)
    if after is None:
        return ""
    return "·" if after is status else after.value


def _arrows() -> dict[tuple[Status, Status], list[str]]:
    arrows: dict[tuple[Status, Status], list[str]] = {}
    for status in Status:
        for event in TRIAL_EVENTS:
            after = _after(status, event)
            if after is not None and after is not status:
                arrows.setdefault((status, after), []).append(type(event).__name__)
    return arrows


def _unmoved() -> str:
    """Events that never change a status have no arrow."""
    moving = {name for names in _arrows().values() for name in names}
    names = [type(e).__name__ for e in TRIAL_EVENTS if type(e).__name__ not in moving]
    listed = ", ".join(f"`{name}`" for name in names)
    return f"These events have no arrow, because they never change the status: {listed}.\n"


def _meanings() -> Iterator[str]:
    for event in TRIAL_EVENTS:
        words = (type(event).__doc__ or "").split("\n\n")[0]
        yield f"- **{type(event).__name__}**: {' '.join(words.split())}"


if __name__ == "__main__":
    sys.stdout.write(page())
