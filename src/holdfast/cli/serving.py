"""`holdfast web`: serves the page until Ctrl-C."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import webbrowser
from typing import TYPE_CHECKING

from holdfast.cli.printing import SOUND, complain, json_text, say
from holdfast.experiment.browse.named_places import path_of, place_to_list
from holdfast.web.errors import check_installed
from holdfast.web.security import allowed_name, base_of, is_loopback

if TYPE_CHECKING:
    from holdfast.web.server import Address, WebServer

_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def serve(given: argparse.Namespace) -> int:
    """Returns the exit code, once the server has ended. Raises ExperimentNotFound,
    InvalidLocation, InvalidConfig, StorageError, PortTaken, WebMissing."""
    check_installed("the page")
    from holdfast.web.server import WebServer, WebSettings

    settings = WebSettings(
        path=_path(given.path),
        host=given.host,
        port=given.port,
        base=base_of(given.base_url),
        names=tuple(allowed_name(name) for name in given.allow_host),
    )
    server = WebServer(settings, complain)

    def on_start(loop: asyncio.AbstractEventLoop) -> None:
        for signum in _ENDS:
            loop.add_signal_handler(signum, server.end)
        _announce(server, given)

    server.run(on_start)
    return SOUND


def _path(text: str | None) -> str:
    """A place, or an experiment, which may be named. Raises ExperimentNotFound, InvalidConfig,
    InvalidLocation, StorageError."""
    if text is None:
        return place_to_list(os.environ)
    return text if os.path.isdir(text) else path_of(text, None, os.environ)


def _announce(server: WebServer, given: argparse.Namespace) -> None:
    address, place = server.address, server.place.public
    if given.json:
        print(json_text({"url": address.url, "place": place}, in_a_line=True), flush=True)
    else:
        say(f"{address.url}")
        say(f"shows {place}. Whoever has this URL can read it and steer its runs. Ctrl-C ends it.")
        if os.environ.get("SSH_CONNECTION") and is_loopback(given.host):
            say(f"From your own machine: {_tunnel(address)}, then open the URL there.")
    sys.stdout.flush()  # whoever reads a pipe waits for the URL
    if not is_loopback(given.host):
        complain(
            f"listening on {given.host}, without encryption: whoever sees the traffic can read "
            f"the token, and then steer your runs. Safer is an SSH tunnel: {_tunnel(address)}"
        )
    if given.open and not webbrowser.open(address.url):
        complain("no browser can be started here: open the URL yourself")


def _tunnel(address: Address) -> str:
    return f"ssh -L {address.port}:127.0.0.1:{address.port} {os.uname().nodename}"
