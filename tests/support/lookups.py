"""Calls that answer, raise, wait and hang, found by their names also in processes of their own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from streaming.declare.enriched import LookupRequest

_FOREVER = 10**10


async def business_call(row: Any, request: LookupRequest) -> dict[str, Any]:
    """`u2` is refused, `u3` never answered."""
    if row.user == "u2":
        raise ValueError("u2 is blocked")
    if row.user == "u3":
        await asyncio.Event().wait()
    return {"message": f"updated {row.user}"}


async def after_a_while(row: Any, request: LookupRequest) -> dict[str, Any]:
    """The first row waits 30 ms, all others 1 ms."""
    await asyncio.sleep(0.03 if row.n == 0 else 0.001)
    return {"square": row.n * row.n}


def rule(row: Any, request: LookupRequest) -> dict[str, Any]:
    """One rule for all event ids; that of `I` takes very long, and notes the process that it keeps busy."""
    if row.event_id == "I":
        Path(row.notes).write_text(str(os.getpid()))
        for _ in range(_FOREVER):
            pass
    return {"doubled": row.n * 2}


@asynccontextmanager
async def http_client() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(timeout=None) as client:
        yield client


async def post(row: Any, request: LookupRequest) -> dict[str, Any]:
    """Ask the server that the row names, under the request's key."""
    client: httpx.AsyncClient = request.opened
    headers = {"Idempotency-Key": request.key, "Attempt": str(request.attempt)}
    response = await client.post(row.url, json=[{"id": row.id}], headers=headers)
    response.raise_for_status()
    return {"answer": response.text}


def no_client() -> Any:
    """Nothing that can be opened."""
    raise ConnectionError("nobody is there")


def plain(row: Any, request: LookupRequest) -> dict[str, Any]:
    """Tells its process, raises, or takes its process down."""
    if row.what == "exits":
        os._exit(7)
    return {"pid": {"doubled": os.getpid()}}[row.what]
