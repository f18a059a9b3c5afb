"""Orders of a person: one is checked here for its shape only, and sent to the run."""

from __future__ import annotations

import json
from typing import Any

from starlette.requests import ClientDisconnect, Request

from holdfast.trial.errors import InvalidConfig
from holdfast.web.security import LARGEST_BODY


async def order_in(request: Request) -> dict[str, Any]:
    """The order in the body of a POST. Raises InvalidConfig."""
    body = bytearray()
    try:
        async for piece in request.stream():
            body += piece
            if len(body) > LARGEST_BODY:
                raise InvalidConfig(f"an order may have {LARGEST_BODY:,} bytes")
    except ClientDisconnect as error:
        raise InvalidConfig("the order is incomplete") from error
    try:
        order = json.loads(bytes(body))
    except (ValueError, RecursionError) as error:
        raise InvalidConfig(f"the order is not JSON: {error}") from error
    if not isinstance(order, dict) or not isinstance(order.get("order"), str):
        raise InvalidConfig('an order is an object such as {"order": "stop", "trials": ["..."]}')
    return order
