"""Tasks of what a test makes by itself, without a run around it."""

from __future__ import annotations

import asyncio

from holdfast.runtime.tasks import TaskScope


def free_tasks() -> TaskScope:
    """Owned by the running loop; whatever fails in one raises there."""

    def fail(error: BaseException) -> None:
        raise error

    return TaskScope(asyncio.get_running_loop().create_task, fail)
