"""Customers with a key, whose rows are revisions: the stream of which histories are tested."""

from __future__ import annotations

from streaming import BoundedOutOfOrderness, Files, Json, Stream

CUSTOMERS = Stream(
    name="customers",
    source=Files("landing/customers"),
    format=Json("id string, version bigint, at timestamp, segment string, city string, gone boolean"),
    event_time="at",
    clock=BoundedOutOfOrderness("10 seconds", max_ahead="30 days"),
    key=("id",),
    sequence="version",
    deletes="gone",
)
