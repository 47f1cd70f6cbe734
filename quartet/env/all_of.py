"""Concurrent calls of which none outlives a failure of another."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def all_of(*calls: Coroutine[Any, Any, T]) -> list[T]:
    """Return the results of concurrent calls. At the first error, cancel and await the others, then raise it."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(call) for call in calls]
        return [task.result() for task in tasks]
    except ExceptionGroup as group_error:
        first = group_error.exceptions[0]
    raise first
