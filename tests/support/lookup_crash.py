"""An enrichment over HTTP that ends by a real SIGKILL: `python -m tests.support.lookup_crash <lake> <point>`."""

from __future__ import annotations

import os
import signal
import sys

from streaming import BoundedOutOfOrderness, Enriched, Files, Json, Lake, Pipeline, Stream, drain, start_session
from tests.support import lookups
from tests.support.crash import Point, armed
from tests.support.instants import NOW

events = Stream(
    name="events",
    source=Files("landing/events", files_per_batch=1),
    format=Json("id string, at timestamp not null, url string"),
    event_time="at",
    clock=BoundedOutOfOrderness("5 seconds"),
)
asked = Enriched(
    "asked",
    events,
    lookups.post,
    {"answer": "string"},
    opens=lookups.http_client,
    timeout="30 seconds",
    retries=1,
    order="as they come",
)
pipeline = Pipeline(events, (asked,))

POINTS: dict[str, Point] = {
    "answers written, what waits is not": Point(
        "", "deltalake:DeltaTable", "create_write_transaction", 1, "/events/asked", after=True
    )
}


def main() -> None:
    """Drain the pipeline and die."""
    root, name = sys.argv[1:]
    spark = start_session()
    with armed(POINTS[name], lambda: os.killpg(0, signal.SIGKILL)):
        drain(spark, Lake(root), pipeline, now=lambda: NOW)


if __name__ == "__main__":
    main()
