"""Work that is worth doing only while its client is there."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

from starsd.service import cancel

Result = TypeVar("Result")


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, Result]) -> Result | None:
    """The result of ``work``, or None if the client left first; the work is then cancelled.

    The request's body must have been read: all that ``receive`` can still bring is the end.
    """
    doing = asyncio.create_task(work)
    gone = asyncio.create_task(_gone(receive))
    try:
        await asyncio.wait({doing, gone}, return_when=asyncio.FIRST_COMPLETED)
        return doing.result() if doing.done() else None
    finally:
        await cancel(doing, gone)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
