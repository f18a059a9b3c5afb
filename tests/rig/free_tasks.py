"""Task groups for objects that a test creates without a run."""

from __future__ import annotations

import asyncio

from holdfast.runtime.tasks import TaskScope


def free_tasks() -> TaskScope:
    """Owned by the running loop; an error in a task raises there."""

    def fail(error: BaseException) -> None:
        raise error

    return TaskScope(asyncio.get_running_loop().create_task, fail)
