"""The server in a process of its own, which a run or a notebook starts.

It ends when the connection to its parent ends, and with the parent.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from functools import partial

from holdfast.errors import TuneError
from holdfast.runtime.process_control import give_way
from holdfast.runtime.transport import Channel
from holdfast.text.errors import named

_NICE = 10


def main(channel: Channel) -> None:
    """Main function of the process. The parent sends `["open", path]`, and gets
    `["at", url, frame]` or `["failed", why]`; later perhaps `["trouble", text]`."""
    opening = channel.receive()
    if opening is None:
        return
    try:
        _serve(channel, opening[1])
    except Exception as error:  # the parent says it in one line
        text = str(error) if isinstance(error, TuneError) else named(error)
        _send(channel, "failed", text)


def _serve(channel: Channel, path: str) -> None:
    from holdfast.web.server import WebServer, WebSettings

    server = WebServer(WebSettings(path=path), partial(_send, channel, "trouble"))

    def on_start(loop: asyncio.AbstractEventLoop) -> None:
        loop.add_reader(channel.fileno(), on_parent, loop)
        give_way(_NICE)  # training has priority over those who watch it
        _send(channel, "at", server.address.url, server.address.frame_url)

    def on_parent(loop: asyncio.AbstractEventLoop) -> None:
        loop.remove_reader(channel.fileno())
        if server.is_watched:
            server.end(last_look=True)
        else:  # nobody sees the end, and the parent waits
            server.place.close()
            os._exit(0)

    server.run(on_start)


def _send(channel: Channel, *words: str) -> None:
    with suppress(ConnectionError, OSError):  # the parent is gone
        channel.send(list(words))
