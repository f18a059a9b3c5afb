"""`results.web()`: the page in a frame of a notebook."""

from __future__ import annotations

import os
import queue
import subprocess
import threading
from contextlib import suppress
from dataclasses import field
from html import escape
from importlib.util import find_spec
from typing import Final
from urllib.parse import urlsplit

from holdfast.dataclass import dataclass
from holdfast.experiment.control.page_server import SERVER
from holdfast.experiment.progress.views import in_notebook
from holdfast.runtime.process_control import Title
from holdfast.runtime.service import start_service
from holdfast.runtime.transport import Channel
from holdfast.trial.errors import InvalidConfig
from holdfast.web.security import WebFailed, check_installed

# A server reads no records before it listens, but a busy machine starts Python slowly.
_START_S: Final = 60.0
_HUB: Final = "JUPYTERHUB_SERVICE_PREFIX"


@dataclass(frozen=True, slots=True, kw_only=True)
class PageFrame:
    """The page of an experiment. `url` has its token; so does `frame_url`, for a frame. The server
    ends with this process."""

    url: str = field(repr=False)
    frame_url: str = field(repr=False)
    path: str
    height: int

    def _repr_html_(self) -> str:
        return (
            f'<iframe src="{escape(self.frame_url)}" title="holdfast: {escape(self.path)}" '
            f'style="width:100%;height:{self.height}px;border:1px solid #8884"></iframe>'
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Running:
    """A server of this process: its URLs, and the process that can be asked whether it lives."""

    process: subprocess.Popen[bytes]
    channel: Channel
    url: str
    frame_url: str


_running: dict[str, _Running] = {}
_starting = threading.Lock()


def shown(path: str | None, *, height: int, base_url: str) -> PageFrame:
    """Raises WebMissing, WebFailed, InvalidConfig."""
    if path is None:
        raise InvalidConfig(
            "results.web() needs a path or URI, which a filesystem object does not have: copy the "
            "experiment, or pass a URI as storage_path"
        )
    check_installed("results.web()")
    with _starting:
        found = _running.get(path)
        if found is None or found.process.poll() is not None:
            found = _running[path] = _start(path)
    frame_url = found.frame_url
    if prefix := base_url or _prefix_of_hub():
        parts = urlsplit(frame_url)
        frame_url = f"{prefix.rstrip('/').replace('{port}', str(parts.port))}{parts.path}"
    frame = PageFrame(url=found.url, frame_url=frame_url, path=path, height=height)
    if not in_notebook():
        print(f"The page of {path}: {found.url}")
    return frame


def _prefix_of_hub() -> str:
    """The path at which JupyterHub serves the ports of this machine; "" elsewhere."""
    prefix = os.environ.get(_HUB, "")
    return f"{prefix}proxy/{{port}}" if prefix and find_spec("jupyter_server_proxy") else ""


def _start(path: str) -> _Running:
    """Start a server in a thread that lives as long as it: Linux ends a child with the thread that
    has started it. Raises WebFailed."""
    answers: queue.SimpleQueue[_Running | Exception] = queue.SimpleQueue()

    def live() -> None:
        try:
            running = _started(path)
        except Exception as error:  # the caller raises it
            answers.put(error)
            return
        answers.put(running)
        with suppress(OSError):
            while running.channel.receive() is not None:  # its troubles: the page shows them, too
                pass
        running.process.wait()

    threading.Thread(target=live, name="holdfast-page", daemon=True).start()
    answer = answers.get()
    if isinstance(answer, Exception):
        raise answer
    return answer


def _started(path: str) -> _Running:
    title = Title("page", os.path.basename(path.rstrip("/")), "page")
    process, sock = start_service(SERVER, environ=os.environ, inherited_fds=(), title=title)
    channel = Channel(sock.detach())
    try:
        channel.send(["open", path])
        answer = channel.receive(_START_S)
    except (OSError, TimeoutError) as error:
        answer = ["failed", str(error)]
    match answer:
        case ["at", str(url), str(frame_url)]:
            return _Running(process=process, channel=channel, url=url, frame_url=frame_url)
        case ["failed", str(why)]:
            failed = why
        case _:
            failed = "it ended before it listened"
    channel.close()
    process.kill()
    process.wait()
    raise WebFailed(f"the page's server did not start: {failed}")
