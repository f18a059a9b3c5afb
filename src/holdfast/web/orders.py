"""The orders of a person: read from a request, and sent to the experiment's process."""

from __future__ import annotations

import json

from starlette.requests import ClientDisconnect, Request

from holdfast.experiment.page.followed import FollowedExperiment
from holdfast.experiment.steering.client import send_order
from holdfast.experiment.steering.orders import InvalidOrder, Order, decode
from holdfast.web.security import LARGEST_BODY


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
