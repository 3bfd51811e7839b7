"""Events of two systems that share a token, brought together where they are at most a minute apart."""

from streaming import BoundedOutOfOrderness, Files, Joined, Json, Pipeline, Stream

_CLOCK = BoundedOutOfOrderness("10 seconds", idle_after="2 minutes")

issued = Stream(
    name="issued",
    description="One row per event of the system that hands out tokens.",
    source=Files("landing/issued", files_per_batch=1),
    format=Json("token_a string, event string, event_timestamp timestamp not null"),
    event_time="event_timestamp",
    clock=_CLOCK,
)

used = Stream(
    name="used",
    description="One row per event of the system that takes them.",
    source=Files("landing/used", files_per_batch=1),
    format=Json("token_b string, event string, event_timestamp timestamp not null"),
    event_time="event_timestamp",
    clock=_CLOCK,
)

merged = Joined(
    name="merged",
    left=issued,
    right=used,
    on={"token_a": "token_b"},
    between=("-60 seconds", "60 seconds"),
    select={"token": "token_a", "first": "left_event", "second": "right_event"},
)

pipeline = Pipeline(name="tokens", streams=(issued, used), operators=(merged,))
