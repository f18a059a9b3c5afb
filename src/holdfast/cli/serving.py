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
from holdfast.experiment.folder.contents import similar_to
from holdfast.experiment.folder.settings import Settings
from holdfast.results.catalog import may_be_mistyped, path_of, place_to_list
from holdfast.results.reading import ExperimentNotFound
from holdfast.runtime.process_control import give_way
from holdfast.web.security import allowed_name, base_of, check_installed, is_loopback

if TYPE_CHECKING:
    from holdfast.web.server import Address, WebServer

_NICE = 10
_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def serve(given: argparse.Namespace, settings: Settings) -> int:
    """Returns the exit code, once the server has ended. Raises ExperimentNotFound,
    InvalidLocation, InvalidConfig, StorageError, PortTaken, WebMissing."""
    check_installed("the page")
    from holdfast.web.server import WebServer, WebSettings

    of_server = WebSettings(
        path=_path(given.path),
        host=given.host,
        port=given.port,
        base=base_of(given.base_url),
        names=tuple(allowed_name(name) for name in given.allow_host),
        may_be_missing=True,
    )
    server = WebServer(of_server, complain)

    def on_start(loop: asyncio.AbstractEventLoop) -> None:
        for signum in _ENDS:
            loop.add_signal_handler(signum, server.end)
        _announce(server, given)

    # Not before: it is waited for. Then trainings on this machine have priority.
    server.run(on_start, lambda: give_way(_NICE, with_session=os.getsid(0) == os.getpid()))
    return SOUND


def _path(text: str | None) -> str:
    """A place, or an experiment, which may be named. What is not there yet and resembles no
    experiment's name is a folder that a run will create.

    Raises ExperimentNotFound, InvalidConfig, InvalidLocation, StorageError."""
    if text is None:
        return place_to_list(os.environ)
    if os.path.isdir(text):
        return text
    try:
        return path_of(text, None, os.environ)
    except ExperimentNotFound:
        if os.environ.get("HOLDFAST_ROOT") or may_be_mistyped(text, os.environ):
            raise
        return text


def _announce(server: WebServer, given: argparse.Namespace) -> None:
    address, place = server.address, server.place.public
    if given.json:
        print(json_text({"url": address.url, "place": place}, in_a_line=True), flush=True)
    else:
        say(f"{address.url}")
        say(f"shows {place}. Whoever has this URL can read it and steer its runs. Ctrl-C ends it.")
        if os.environ.get("SSH_CONNECTION") and is_loopback(given.host):
            say(f"From your own machine: {_tunnel(address)}, then open the URL there.")
    if server.place.is_missing:
        complain(f"{_missing(place)}. The page is empty until a run creates it")
    sys.stdout.flush()  # whoever reads a pipe waits for the URL
    if not is_loopback(given.host):
        complain(
            f"listening on {given.host}, without encryption: whoever sees the traffic can read "
            f"the token, and then steer your runs. Safer is an SSH tunnel: {_tunnel(address)}"
        )
    if given.open and not webbrowser.open(address.url):
        complain("no browser can be started here: open the URL yourself")


def _missing(place: str) -> str:
    """`/home/ann/reslts does not exist yet (similar: results)`."""
    parent, name = os.path.split(place)
    folders = [one.name for one in os.scandir(parent) if one.is_dir()]
    similar = ", ".join(similar_to(name, folders))
    return f"{place} does not exist yet{f' (similar: {similar})' if similar else ''}"


def _tunnel(address: Address) -> str:
    return f"ssh -L {address.port}:127.0.0.1:{address.port} {os.uname().nodename}"
