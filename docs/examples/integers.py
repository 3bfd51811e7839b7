"""Integers of a generator, summed per five seconds over all of them: one running sum, however many there are."""

from streaming import BoundedOutOfOrderness, Files, Json, Pipeline, Stream, Tumbling, Windowed, agg

integers = Stream(
    name="integers",
    description="One row per integer, with the time at which it was due.",
    source=Files("landing/integers"),
    format=Json("n bigint not null, due timestamp not null"),
    event_time="due",
    clock=BoundedOutOfOrderness("0 seconds"),
)

sums = Windowed(
    name="sums",
    of=integers,
    window=Tumbling("5 seconds"),
    aggregates={"sum": agg.sum("n"), "integers": agg.count()},
)

pipeline = Pipeline(stream=integers, views=(sums,))
