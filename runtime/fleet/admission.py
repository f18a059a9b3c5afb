"""Invites agents, and admits those that show their ticket and run the same holdfast and Python."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from holdfast.runtime.engines.engine import EngineFailed, Invitation, Pipe
from holdfast.runtime.fleet.banner import AfterBanner
from holdfast.runtime.fleet.claims import Hello
from holdfast.runtime.fleet.door import Door
from holdfast.runtime.fleet.greeting import Greeting
from holdfast.runtime.fleet.link import Link
from holdfast.runtime.fleet.settings import LARGEST_BEFORE_HELLO, PROTOCOL, FleetSettings
from holdfast.runtime.fleet.tickets import Invited, Ticket, Tickets, encode_invitation
from holdfast.runtime.fleet.tls import tls_context
from holdfast.runtime.tasks import TaskScope
from holdfast.version import VERSION

if TYPE_CHECKING:
    from holdfast.runtime.fleet.authority import Authority

# How long a refused agent may take to read why.
_READ_S = 5.0


class Admission:
    """Everything about an agent before it is a node."""

    def __init__(
        self,
        settings: FleetSettings,
        tasks: TaskScope,
        *,
        admitted: Callable[[Link, Ticket, Hello], None],
        refused: Callable[[Ticket, str], None],
        tell: Callable[[str], None],
    ) -> None:
        """`refused` gets the ticket of an agent that cannot be a node, and why."""
        self.tickets = Tickets()
        # How many connections have shown no ticket.
        self.turned_away = 0
        self._settings = settings
        self._tasks = tasks
        self._admitted = admitted
        self._refused = refused
        self._tell = tell
        self._door: Door | None = None
        self._greeting = Greeting(
            self.tickets, self._check, tasks=tasks, turned_away=self._turn_away
        )

    def invite(self, kind: str, *, over_pipe: bool) -> Invitation:
        """Raises EngineFailed if the port cannot be opened, or `cryptography` is missing."""
        ticket, token = self.tickets.issue(kind, over_pipe=over_pipe)
        invited = Invited(ticket=ticket.name, token=token)
        if not over_pipe:
            invited = Invited(
                ticket=ticket.name,
                token=token,
                address=self._settings.address,
                port=self._opened_door.port,
                credentials=self._authority.agent(ticket.name),
            )
        return Invitation(ticket=ticket.name, secret=encode_invitation(invited))

    def attach(self, name: str, pipe: Pipe) -> None:
        ticket = self.tickets.open.get(name)
        if ticket is None or not ticket.over_pipe:
            for fd in (pipe.reads, pipe.writes):
                os.close(fd)
            return
        link = Link(
            pipe.reads, pipe.writes, AfterBanner(), largest=LARGEST_BEFORE_HELLO, name=name
        )
        self._greeting.receive(link, self._settings.pipe_hello_s, name)

    def close(self) -> None:
        """Admit no more agents."""
        if self._door is not None:
            self._door.close()
        self._greeting.close()
        for name in list(self.tickets.open):
            self.tickets.withdraw(name)

    @cached_property
    def _authority(self) -> Authority:
        try:
            from holdfast.runtime.fleet.authority import Authority
        except ImportError as error:
            raise EngineFailed(
                f"Agents that connect over TLS need the package cryptography ({error}): "
                f"pip install 'holdfast[cluster]'"
            ) from error
        return Authority()

    @property
    def _opened_door(self) -> Door:
        if self._door is None:
            context = tls_context(self._authority.controller(), is_server=True)
            try:
                self._door = Door(self._greeting, self._settings, context, self._tasks)
            except OSError as error:
                raise EngineFailed(
                    f"Agents cannot connect to this machine: its address "
                    f"{self._settings.address} cannot be used: {error}"
                ) from error
        return self._door

    def _check(self, link: Link, ticket: Ticket, hello: Hello) -> None:
        problem = refusal(hello)
        if not problem:
            self._admitted(link, ticket, hello)
            return
        link.hand_over(lambda _: None, lambda _: None)
        link.send(["refused", problem])
        link.finish()
        self._tasks.later(_READ_S, link.close)
        self._refused(ticket, problem)

    def _turn_away(self, link: Link, reason: str) -> None:
        self.turned_away += 1
        if isinstance(link.codec, AfterBanner):
            self._miss(link.name, reason)
        elif self.turned_away == 1:
            reason = reason or "it closed the connection before its hello"
            self._tell(
                f"A connection from {link.name} to the port of this run is not an agent's: "
                f"{reason}. It reached nothing. More of them are not shown"
            )

    def _miss(self, name: str, reason: str) -> None:
        """An agent was not reached over its pipe. If it has closed the pipe itself, its job ends,
        and the engine says how."""
        ticket = self.tickets.withdraw(name) if reason else None
        if ticket is not None:
            self._refused(ticket, f"an agent could not be reached over its pipe: {reason}")


def refusal(hello: Hello) -> str:
    """Why an agent cannot be a node; "" if it can."""
    own_python = python_version()
    if hello.protocol != PROTOCOL or hello.version != VERSION:
        return (
            f"{hello.hostname} has holdfast {hello.version}, this machine {VERSION}: install "
            f"the same version on both"
        )
    if hello.python.split(".")[:2] != own_python.split(".")[:2]:
        return (
            f"{hello.hostname} has Python {hello.python}, this machine {own_python}: trials are "
            f"sent as pickles, which need the same minor version on both"
        )
    return ""


def python_version() -> str:
    return ".".join(map(str, sys.version_info[:3]))
