"""Messages of a queue of a broker of AMQP, whose port and virtual host the environment tells."""

import os

from streaming import Ascending, Files, Json, Pipeline, RabbitMq, Receiver, Stream, Tumbling, Windowed, agg

PORT, VIRTUAL_HOST = "QUEUED_PORT", "QUEUED_VIRTUAL_HOST"
"""The variables."""

queued = Stream(
    name="queued",
    source=Files("landing/lines"),
    format=Json("n bigint not null"),
    derived={"at": "_ingested_at"},
    event_time="at",
    clock=Ascending(),
)
by_hour = Windowed("queued_by_hour", queued, Tumbling("1 hour"), {"rows": agg.count()})
queued_in = Receiver(
    name="queued_in",
    connector=RabbitMq(
        "127.0.0.1", "queued", int(os.environ.get(PORT, "5672")), os.environ.get(VIRTUAL_HOST, "/"), prefetch=20
    ),
    into=queued,
    every="10 milliseconds",
)

pipeline = Pipeline(queued, (by_hour,), receivers=(queued_in,))
