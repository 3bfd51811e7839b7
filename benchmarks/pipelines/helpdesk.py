"""The pipeline of the kills: meters and the complaints about them, which meet, and for each of which a ticket is asked.

The environment says where the service that gives tickets is.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx

from benchmarks.pipelines.meters import meters, per_minute, per_ten_seconds
from benchmarks.pipelines.meters import pipeline as of_meters
from streaming import Enriched, Files, Joined, Json, LookupRequest, Pipeline, Rule, Tumbling, WindowJoined

TICKETS = "HELPDESK_TICKETS"

helpdesk_meters = replace(meters, name="helpdesk_meters", source=Files("landing/helpdesk_meters", files_per_batch=20))
complaints = replace(
    meters,
    name="complaints",
    description="Complaints about meters, some late, some damaged.",
    source=Files("landing/complaints", files_per_batch=20),
    format=Json("meter string, at timestamp, number bigint"),
    rules=(Rule("numbered", "number >= 0"),),
)


@asynccontextmanager
async def client() -> AsyncIterator[httpx.AsyncClient]:
    """One for all calls; a call is given up by the enrichment."""
    async with httpx.AsyncClient(timeout=None) as opened:
        yield opened


async def ask_for_ticket(row: Any, request: LookupRequest) -> dict[str, Any]:
    """A ticket for a complaint, whose number is the same however often it is asked for."""
    headers = {"Idempotency-Key": request.key, "Attempt": str(request.attempt)}
    response = await request.opened.post(os.environ[TICKETS], json=[{"number": row.number}], headers=headers)
    response.raise_for_status()
    return {"ticket": response.text}


near_complaints = Joined(
    "near_complaints",
    complaints,
    helpdesk_meters,
    ("meter",),
    ("-2 seconds", "1 second"),
    "left",
    select=("number", "value"),
)
by_window = WindowJoined(
    "complaints_by_window", complaints, helpdesk_meters, ("meter",), Tumbling("10 seconds"), ("number", "value")
)
ticketed = Enriched(
    "ticketed",
    complaints,
    ask_for_ticket,
    {"ticket": "string"},
    opens=client,
    select=("number",),
    timeout="10 seconds",
    retries=3,
    order="as they come",
)

pipeline = Pipeline(
    name="helpdesk",
    streams=(helpdesk_meters, complaints),
    operators=(
        replace(per_ten_seconds, name="helpdesk_per_ten_seconds", of=helpdesk_meters),
        replace(per_minute, name="helpdesk_per_minute", of=helpdesk_meters),
        near_complaints,
        by_window,
        ticketed,
    ),
    restart=of_meters.restart,
    stop_within=of_meters.stop_within,
)
