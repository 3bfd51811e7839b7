"""Orders of a shop, in the fewest lines a pipeline needs: revenue and number of orders per day."""

from streaming import agg
from streaming.clocks import BoundedOutOfOrderness
from streaming.declare import Pipeline, Stream, Windowed
from streaming.formats import Json
from streaming.sources import Files
from streaming.windows import Tumbling

orders = Stream(
    name="orders",
    description="One row per order.",
    source=Files("landing/orders"),
    format=Json("order_id string not null, ordered_at timestamp, amount decimal(10, 2) not null"),
    event_time="ordered_at",
    clock=BoundedOutOfOrderness("1 hour"),
)

orders_per_day = Windowed(
    name="orders_per_day",
    description="Revenue and orders per UTC day.",
    of=orders,
    window=Tumbling("1 day"),
    aggregates={"revenue": agg.sum("amount"), "orders": agg.count()},
)

pipeline = Pipeline(stream=orders, views=(orders_per_day,))
