"""The orders of a person: read from a request, and sent to the experiment's process."""

from __future__ import annotations

import asyncio
import json
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from starlette.requests import ClientDisconnect, Request

from holdfast.experiment.page.followed import FollowedExperiment
from holdfast.experiment.steering.client import send_order
from holdfast.experiment.steering.orders import InvalidOrder, Order, decode
from holdfast.web.following import settle
from holdfast.web.security import LARGEST_BODY

_KEY = re.compile(r"[A-Za-z0-9-]{1,64}\Z")
_MOST_KEYS = 1_000


class OrdersOnce:
    """Performs each order once, even if a browser sends it several times.

    It does if no answer has arrived: a browser gives up all requests when the machine's network
    changes, and cannot know what became of them. The header `Idempotency-Key` says which are one.
    """

    def __init__(self) -> None:
        self._answers: OrderedDict[tuple[str, str], asyncio.Future[str]] = OrderedDict()

    async def perform(self, request: Request, perform: Callable[[], Awaitable[str]]) -> str:
        """The answer of the first of these requests. Raises InvalidOrder, and what that did."""
        key = request.headers.get("idempotency-key")
        if key is None:
            return await perform()
        if not _KEY.match(key):
            raise InvalidOrder("an Idempotency-Key has 1 to 64 letters, digits and hyphens")
        what = (request.path_params["key"], key)
        answer = self._answers.get(what)
        if answer is None:
            answer = self._answers[what] = asyncio.get_running_loop().create_future()
            if len(self._answers) > _MOST_KEYS:
                self._answers.popitem(last=False)
            await settle(answer, perform())
        return await asyncio.shield(answer)


async def order_in(request: Request) -> Order:
    """The order in the body of a POST. Raises InvalidOrder."""
    body = bytearray()
    try:
        async for piece in request.stream():
            body += piece
            if len(body) > LARGEST_BODY:
                raise InvalidOrder(f"an order may have {LARGEST_BODY:,} bytes")
    except ClientDisconnect as error:
        raise InvalidOrder("the order is incomplete") from error
    try:
        plain = json.loads(bytes(body))
    except (ValueError, RecursionError) as error:
        raise InvalidOrder(f"the order is not JSON: {error}") from error
    return decode(plain)


def performed(experiment: FollowedExperiment, order: Order) -> str:
    """What the run says, which has the order in its journal by then. Blocks.

    Raises CannotSteer, InvalidOrder, ExperimentNotFound, StorageError, OSError.
    """
    experiment.look()
    return send_order(experiment.located, order, via="page")
