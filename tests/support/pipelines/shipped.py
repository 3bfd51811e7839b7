"""Rows in a table of Postgres, one for each number, whose days can be delivered again; libpq's variables say where."""

from streaming import BoundedOutOfOrderness, Delivery, Files, Json, Pipeline, Postgres, Stream, Tumbling, Windowed, agg

shipped = Stream(
    name="shipped",
    source=Files("landing/shipped"),
    format=Json("number bigint not null, at timestamp, place string"),
    event_time="at",
    clock=BoundedOutOfOrderness("5 seconds"),
)
by_day = Windowed("shipped_by_day", shipped, Tumbling("1 day"), {"rows": agg.count()})
to_table = Delivery("shipped_to_table", shipped, Postgres("shipped", key=("number",)), batch=2)

pipeline = Pipeline(shipped, (by_day,), deliveries=(to_table,))
