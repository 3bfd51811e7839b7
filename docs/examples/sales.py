"""Sales as they come, `date,month,category,product,profit` a line: profit per month and two seconds of arrival."""

from streaming import BoundedOutOfOrderness, Files, Json, Pipeline, Rule, Stream, Tumbling, Windowed, agg

sales = Stream(
    name="sales",
    description="One row per sale.",
    source=Files("landing/sales"),
    format=Json("line string not null"),
    derived={
        "fields": "split(line, ',', -1)",
        "month": "get(fields, 1)",
        "profit": "try_cast(get(fields, 4) as bigint)",
        "arrived_at": "_ingested_at",
    },
    event_time="arrived_at",
    clock=BoundedOutOfOrderness("0 seconds"),
    rules=(
        Rule("five_fields", "size(fields) = 5"),
        Rule("profit_is_a_number", "size(fields) <> 5 or profit is not null"),
    ),
)

profit_by_month = Windowed(
    name="profit_by_month",
    of=sales,
    by=("month",),
    window=Tumbling("2 seconds"),
    aggregates={"profit": agg.sum("profit"), "sales": agg.count()},
)

pipeline = Pipeline(stream=sales, views=(profit_by_month,))
