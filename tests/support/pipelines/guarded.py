"""Rows of an API that asks for a token, delivered to another one; the environment tells where they are."""

import os

from streaming import (
    Ascending,
    Delivery,
    Files,
    HttpPoll,
    Json,
    Pipeline,
    Receiver,
    Rest,
    Stream,
    Tumbling,
    Windowed,
    agg,
)

POLLED, TARGET, TOKEN = "GUARDED_POLLED", "GUARDED_TARGET", "GUARDED_TOKEN"
"""The variables with the two addresses, and the one that holds the token of both."""

guarded = Stream(
    name="guarded",
    source=Files("landing/guarded"),
    format=Json("n bigint not null"),
    derived={"at": "_ingested_at"},
    event_time="at",
    clock=Ascending(),
)
by_hour = Windowed("guarded_by_hour", guarded, Tumbling("1 hour"), {"rows": agg.count()})
guarded_in = Receiver(
    name="guarded_in",
    connector=HttpPoll(os.environ.get(POLLED, "http://127.0.0.1:9997/"), secret_headers={"Authorization": TOKEN}),
    into=guarded,
    every="50 milliseconds",
)
out = Delivery(
    "guarded_out",
    guarded,
    Rest(os.environ.get(TARGET, "http://127.0.0.1:9996/"), secret_headers={"Authorization": TOKEN}, flush=None),
)

pipeline = Pipeline(guarded, (by_hour,), receivers=(guarded_in,), deliveries=(out,))
