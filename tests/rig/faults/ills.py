"""Disturbances of requests to a server, and plans of which requests they hit."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from dataclasses import field
from enum import StrEnum
from typing import Final, Protocol

from holdfast.dataclass import dataclass


class Ill(StrEnum):
    """The disturbance of a request."""

    LATENCY = "it takes half a second longer"
    SILENCE = "it is accepted and never answered"
    SILENCE_AFTER = "it is performed and never answered"
    RESET = "the connection breaks before it arrives"
    ANSWER_LOST = "it is performed, and the connection breaks before the answer arrives"
    ERROR = "500 InternalError"
    SLOW_DOWN = "503 SlowDown"
    FORBIDDEN = "403 AccessDenied"
    EXPIRED = "400 ExpiredToken"
    SKEWED = "403 RequestTimeTooSkewed"
    TRUNCATED = "the answer breaks off in the middle"
    CORRUPTED = "a bit of what is put is flipped on its way"
    PHANTOM = "the answer is success, and nothing was put"


UPLOADS_ONLY: Final = frozenset({Ill.CORRUPTED, Ill.PHANTOM})


class Aim(StrEnum):
    """The requests that a plan can hit."""

    ANY = "any request"
    PUT = "a put"
    CLAIM = "the put of the claim"
    SEGMENT = "the put of a journal segment"
    HEAD = "the put of the head"
    MANIFEST = "the put of a manifest"
    COPY = "a copy of an object"
    PART = "a part of a multipart upload"
    COMPLETION = "the completion of a multipart upload"

    def means(self, request: Request) -> bool:
        method, path = request.method, request.path
        place = path.partition("?")[0]
        match self:
            case Aim.ANY:
                return True
            case Aim.COPY:
                return request.is_copy
            case Aim.PART:
                return method == "PUT" and "partNumber=" in path
            case Aim.COMPLETION:
                return method == "POST" and "uploadId=" in path
            case Aim.PUT:
                return method == "PUT"
            case Aim.CLAIM:
                return method == "PUT" and "/.epochs/" in place
            case Aim.SEGMENT:
                return method == "PUT" and "/journal/" in place
            case Aim.HEAD:
                return method == "PUT" and place.endswith("/head.json")
            case Aim.MANIFEST:
                return method == "PUT" and place.endswith("/.holdfast.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Request number `number` of the proxy, from 1, signed with this access key.

    `is_copy`: the server takes the bytes from an object that it has.
    """

    number: int
    method: str
    path: str
    access_key: str = ""
    is_copy: bool = False

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    def may_be(self, ill: Ill) -> bool:
        """Whether the disturbance is possible: some occur only in uploads. A phantom befalls what
        holdfast looks at again after its put; for other files the answer counts."""
        if ill is Ill.PHANTOM and not self._is_looked_at:
            return False
        is_upload = self.method == "PUT" or Aim.COMPLETION.means(self)
        return is_upload or ill not in UPLOADS_ONLY

    @property
    def _is_looked_at(self) -> bool:
        of_publication = (Aim.CLAIM, Aim.SEGMENT, Aim.HEAD)
        is_of_checkpoint = "/checkpoint_" in self.path
        return is_of_checkpoint or any(aim.means(self) for aim in of_publication)


class Plan(Protocol):
    def befalls(self, request: Request) -> Ill | None:
        """The disturbance of this request, or None. Called once for each, in order."""
        ...


class Well:
    """Disturbs nothing."""

    def befalls(self, request: Request) -> Ill | None:
        return None


@dataclass(slots=True, kw_only=True)
class Some:
    """Disturbs this many matching requests, from the `at`-th on."""

    ill: Ill
    at: int
    times: int = 1
    aim: Aim = Aim.ANY
    _met: int = 0

    def befalls(self, request: Request) -> Ill | None:
        if not self.aim.means(request) or not request.may_be(self.ill):
            return None
        self._met += 1
        return self.ill if self.at <= self._met < self.at + self.times else None


@dataclass(slots=True, kw_only=True)
class AtRandom:
    """Disturbs each request with this probability, in random ways."""

    ills: Sequence[Ill]
    probability: float
    seed: int

    def befalls(self, request: Request) -> Ill | None:
        chance = random.Random(f"{self.seed} {request.number}")
        if chance.random() >= self.probability:
            return None
        ill = chance.choice(self.ills)
        return ill if request.may_be(ill) else None


@dataclass(slots=True, kw_only=True)
class KeyExpires:
    """From the `at`-th request on, the key that signed it is refused; another one is accepted."""

    at: int
    _expired: str | None = None

    def befalls(self, request: Request) -> Ill | None:
        if request.number == self.at:
            self._expired = request.access_key
        return Ill.EXPIRED if request.access_key == self._expired else None


@dataclass(slots=True, kw_only=True)
class GoesSilent:
    """From the `at`-th request on no request is answered, until `is_over` is set."""

    at: int
    has_begun: threading.Event = field(default_factory=threading.Event)
    is_over: threading.Event = field(default_factory=threading.Event)

    def befalls(self, request: Request) -> Ill | None:
        if request.number < self.at or self.is_over.is_set():
            return None
        self.has_begun.set()
        return Ill.SILENCE
