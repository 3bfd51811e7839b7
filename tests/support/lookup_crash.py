"""An enrichment over HTTP that ends by a real SIGKILL: `python -m tests.support.lookup_crash <lake> <point>`.

What it asks about lies in the log already. The session is lent: an enrichment reads through Spark, asks and writes in
Python.
"""

from __future__ import annotations

import os
import signal
import sys

from streaming import BoundedOutOfOrderness, Enriched, Files, Json, Lake, Pipeline, Stream
from tests.support import lookups
from tests.support.crash import Point, armed
from tests.support.lent import borrowed_session
from tests.support.running import running

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
    """Step the enrichment and die."""
    root, name = sys.argv[1:]
    with (
        running(borrowed_session(), Lake(root), pipeline) as run,
        armed(POINTS[name], lambda: os.killpg(0, signal.SIGKILL)),
    ):
        run.step_all()


if __name__ == "__main__":
    main()
