"""Orders of a shop's database, as Debezium tells their changes: revenue an hour, by country, into a table again."""

from streaming import (
    BoundedOutOfOrderness,
    Debezium,
    Delivery,
    Json,
    Kafka,
    Pipeline,
    Postgres,
    Stream,
    Tumbling,
    Windowed,
    agg,
    parameter,
)

database_orders = Stream(
    name="database_orders",
    description="One row per change of an order; what stands is the table of the shop.",
    source=Kafka(parameter("shop_servers", "localhost:9092"), topic="shop.public.orders"),
    format=Debezium(
        Json("id bigint, country string, status string, amount decimal(10, 2), notes string, placed_at timestamp"),
        decimals="text",
    ),
    event_time="placed_at",
    clock=BoundedOutOfOrderness("10 minutes"),
    key=("id",),
)

revenue_by_hour = Windowed(
    name="revenue_by_hour",
    description="Orders that are not cancelled, and what they bring.",
    of=database_orders,
    by=("country",),
    window=Tumbling("1 hour"),
    where="status <> 'cancelled'",
    aggregates={"orders": agg.count(), "revenue": agg.sum("amount")},
)

revenue_to_the_shop = Delivery(
    name="revenue_to_the_shop",
    of=revenue_by_hour,
    what="current",
    to=Postgres("revenue_by_hour", connection="service=shop", key=("country", "window_start")),
)

pipeline = Pipeline(stream=database_orders, views=(revenue_by_hour,), deliveries=(revenue_to_the_shop,))
