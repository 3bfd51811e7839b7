"""Customers: each change of a row becomes an interval in which it was so, also when it is told late."""

from streaming import BoundedOutOfOrderness, Files, History, Json, Pipeline, Stream

customers = Stream(
    name="customers",
    description="One row per change of a customer.",
    source=Files("landing/customers"),
    format=Json(
        "id bigint not null, version bigint not null, changed_at timestamp not null, segment string, city string, "
        "op string"
    ),
    event_time="changed_at",
    clock=BoundedOutOfOrderness("1 hour"),
    key=("id",),
    sequence="version",
    deletes="op = 'd'",
)

customer_history = History(
    name="customer_history",
    of=customers,
    track=("segment",),
    description="The segment of each customer, and since when until when it was that.",
)

pipeline = Pipeline(stream=customers, views=(customer_history,))
