"""Several questions at once, for one sample or one call."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["concurrently"]

T = TypeVar("T")


async def concurrently(*questions: Coroutine[Any, Any, T]) -> list[T]:
    """Await all of them at once, and return their answers in this order; the first error cancels the others."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(question) for question in questions]
    except BaseExceptionGroup as failed:
        # The caller needs one error, not an ExceptionGroup.
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]
