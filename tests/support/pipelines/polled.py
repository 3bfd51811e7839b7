"""Events of an API that is polled, whose address the environment tells."""

import os

from streaming import Ascending, Files, HttpPoll, Json, Pipeline, Receiver, Stream, Tumbling, Windowed, agg

URL = "POLLED_URL"
"""The variable."""

polled = Stream(
    name="polled",
    source=Files("landing/lines"),
    format=Json("n bigint not null"),
    derived={"at": "_ingested_at"},
    event_time="at",
    clock=Ascending(),
)
by_hour = Windowed("polled_by_hour", polled, Tumbling("1 hour"), {"rows": agg.count()})
polled_in = Receiver(
    name="polled_in",
    connector=HttpPoll(
        os.environ.get(URL, "http://127.0.0.1:9998/"), rows_in="items", cursor_in="next", parameter="since"
    ),
    into=polled,
    every="50 milliseconds",
    rows_per_file=3,
)

pipeline = Pipeline(polled, (by_hour,), receivers=(polled_in,))
