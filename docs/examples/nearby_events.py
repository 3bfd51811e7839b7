"""Events of two streams that belong together because they happen near each other in time."""

from dataclasses import replace

from streaming import BoundedOutOfOrderness, Files, Joined, Json, Pipeline, Stream

departed = Stream(
    name="departed",
    description="One row per departure.",
    source=Files("landing/departed"),
    format=Json("id string, at timestamp not null"),
    event_time="at",
    clock=BoundedOutOfOrderness("0 seconds"),
)
arrived = replace(departed, name="arrived", description="One row per arrival.", source=Files("landing/arrived"))

around = Joined(
    name="around",
    left=departed,
    right=arrived,
    on=("id",),
    between=("-1 hour", "15 minutes"),
)

afterwards = Joined(name="afterwards", left=departed, right=arrived, on=("id",), between=("1 hour", "2 hours"))

pipeline = Pipeline(name="nearby_events", streams=(departed, arrived), operators=(around, afterwards))
