"""The page of a run: its server is a child process, and never matters to the run."""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from holdfast.experiment.callbacks.thread import Tell
from holdfast.experiment.folder.layout import Layout
from holdfast.experiment.folder.shell import holdfast_command, listed_file
from holdfast.experiment.progress.views import in_notebook
from holdfast.lazy import WEB
from holdfast.runtime.process_control import Title
from holdfast.runtime.service import Service
from holdfast.runtime.tasks import TaskScope
from holdfast.syncer.files.durable import make_folder, new_file_for, write_all

SERVER: Final = "holdfast.web.child:main"
# How long the end of a run waits for the server, which sends the last state to those who watch.
_END_S: Final = 1.2
_WITHOUT: Final = "The run continues without its page"


def open_page(
    layout: Layout, environ: Mapping[str, str], *, tell: Tell, says_little: bool, tasks: TaskScope
) -> RunPage | None:
    """Start the server. None if that is impossible; `tell` then gets one warning. With
    `says_little` (verbose=0) the URL is printed all the same: it was asked for."""
    if find_spec(WEB.module) is None or find_spec("uvicorn") is None:
        tell(f"{WEB.missing('RunConfig(web=True)')}. {_WITHOUT}", "warning")
        return None
    try:
        return RunPage(layout, environ, tell=tell, says_little=says_little, tasks=tasks)
    except OSError as error:
        tell(f"the page's server cannot be started: {error}. {_WITHOUT}", "warning")
        return None


class RunPage:
    """The server of a run's page, until `close`."""

    def __init__(
        self,
        layout: Layout,
        environ: Mapping[str, str],
        *,
        tell: Tell,
        says_little: bool,
        tasks: TaskScope,
    ) -> None:
        """Raises OSError."""
        self._layout, self._environ = layout, environ
        self._tell = tell
        self._level: Any = "loss" if says_little else "info"
        self._is_closing = False
        self._kept: Path | None = None
        title = Title("page", layout.root.name, "page")
        self._service = Service(SERVER, self._on_message, environ=environ, title=title)
        self._service.send(["open", str(layout.root)])
        self._watching = tasks.start(self._watch())

    async def close(self, *, at_once: bool) -> None:
        """End the server. Waits only while somebody watches, and then for a moment."""
        self._is_closing = True
        try:
            async with asyncio.timeout(0.0 if at_once else _END_S):
                await self._service.close()
        except TimeoutError:
            self._service.kill()
            await self._service.gone()
        finally:
            self._watching.cancel()
            if self._kept is not None:
                self._kept.unlink(missing_ok=True)

    async def _watch(self) -> None:
        await self._service.ended
        how = await self._service.gone()
        if not self._is_closing:
            self._is_closing = True
            self._tell(f"the page's server {how or 'has ended'}. {_WITHOUT}", "warning")

    def _on_message(self, message: list[Any]) -> None:
        kind, text = message[:2]
        if kind == "at":
            self._show(text)
        elif kind == "failed":
            self._is_closing = True
            self._tell(f"the page's server failed: {text}. {_WITHOUT}", "warning")
        else:
            self._tell(f"the page's server: {text}", "warning")

    def _show(self, url: str) -> None:
        """To a person only. Others may read the file that output goes to."""
        if in_notebook() or sys.stderr.isatty():
            self._tell(f"the page of this run: {url}", self._level)
            return
        try:
            self._kept = _keep(self._environ, url)
            text = f"the URL of this run's page is in {self._kept}"
        except OSError as error:
            shown = holdfast_command("web", str(self._layout.root))
            text = f"the URL of this run's page cannot be kept: {error}. Use {shown}"
        self._tell(text, self._level)


def _keep(environ: Mapping[str, str], url: str) -> Path:
    """Write a file that only this user can read, and remove those of runs that were killed.
    Raises OSError."""
    folder = listed_file(environ).parent / "pages"
    make_folder(folder, 0o700)
    for old in folder.glob("*.url"):
        with suppress(OSError):
            if not _is_alive(old.stem.partition("-")[0]):
                old.unlink()
    path = folder / f"{os.getpid()}-{secrets.token_hex(4)}.url"
    with new_file_for(path, 0o600) as file:
        write_all(file.fileno(), f"{url}\n".encode())
    return path


def _is_alive(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except (ProcessLookupError, ValueError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
