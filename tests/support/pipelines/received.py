"""Lines from a socket, whose port the environment tells."""

import os

from streaming import (
    BoundedOutOfOrderness,
    Files,
    Pipeline,
    Receiver,
    Stream,
    TcpSocket,
    Text,
    Tumbling,
    Windowed,
    agg,
)

PORT = "RECEIVED_PORT"
"""The variable."""

received = Stream(
    name="received",
    source=Files("landing/lines"),
    format=Text("line"),
    derived={"at": "_ingested_at"},
    event_time="at",
    clock=BoundedOutOfOrderness("0 seconds"),
)
by_hour = Windowed("received_by_hour", received, Tumbling("1 hour"), {"rows": agg.count()})
lines_in = Receiver(
    "lines_in",
    TcpSocket("127.0.0.1", int(os.environ.get(PORT, "9999"))),
    into=received,
    every="1 hour",
    rows_per_file=3,
)

pipeline = Pipeline(received, (by_hour,), receivers=(lines_in,))
