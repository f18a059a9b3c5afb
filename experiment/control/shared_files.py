"""What a run sends to each node: the user's code and the objects of `put`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from holdfast.experiment.callbacks.messages import Tell
from holdfast.experiment.control.plan import RunPlan
from holdfast.experiment.nodes.cluster_config import Local
from holdfast.experiment.nodes.packing import own_modules, pack_folder, pack_modules, size_text
from holdfast.experiment.worker.objects import ObjectRef
from holdfast.runtime.fleet.delivery import SharedFile
from holdfast.runtime.objects.object_folder import TemporaryFolder


class PackedFolder:
    """The folder of the archives, made when it is needed."""

    def __init__(self) -> None:
        self._folder: TemporaryFolder | None = None

    def file(self, name: str) -> Path:
        """A path in it. Raises OSError."""
        if self._folder is None:
            self._folder = TemporaryFolder()
        return Path(self._folder.path, name)

    def remove(self) -> None:
        if self._folder is not None:
            self._folder.remove()
            self._folder = None


def shared_files(
    plan: RunPlan,
    references: Sequence[ObjectRef],
    packed: PackedFolder,
    look: Callable[[], None],
    tell: Tell,
) -> list[SharedFile]:
    """Pack the `working_dir` and the script's own modules, and list the objects.

    Agents on this machine need none of this. `look` is called before each file, and may raise.
    Raises InvalidConfig for a folder that is too large, OSError.
    """
    if isinstance(plan.host_resources.cluster, Local):
        return []
    files = [SharedFile(name=ref.id, path=ref.path, use="object") for ref in references]
    if references:
        total = size_text(sum(ref.size_bytes for ref in references))
        tell(f"sending objects of put() to each node: {len(references):,}, {total}", "info")
    if folder := plan.environment.working_dir:
        results = [plan.layout.root, plan.layout.root.parent]
        package = pack_folder(
            Path(folder), packed.file("working_dir.tar.gz"), without=results, look=look
        )
        tell(package.told(f"the working_dir {folder}"), "info")
        files.append(SharedFile(name="directory", path=str(package.archive), use="directory"))
    if names := own_modules(sys.modules):
        package = pack_modules(sys.modules, packed.file("modules.tar.gz"), look=look)
        tell(package.told(f"your modules {', '.join(names)}"), "info")
        files.append(SharedFile(name="modules", path=str(package.archive), use="modules"))
    return files
