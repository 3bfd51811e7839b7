"""Clicks per visit, told once nothing has come of it for half an hour: ids that never return leave no state."""

from typing import Any

from streaming import BoundedOutOfOrderness, Files, Json, Key, Keyed, Pipeline, Stream, micros

visit_clicks = Stream(
    name="visit_clicks",
    description="One row per click; each visit has an id of its own.",
    source=Files("landing/visit_clicks"),
    format=Json("visit string not null, clicked_at timestamp not null"),
    event_time="clicked_at",
    clock=BoundedOutOfOrderness("10 seconds"),
)


def count(key: Key, row: Any) -> None:
    """Each click puts the end off; one that comes behind a later one does not bring it forward."""
    key.clicks = (key.clicks or 0) + 1
    key.timer("over", max(key.at + micros("30 minutes"), key.pending("over") or key.at))


def tell(key: Key) -> None:
    """The visit is over."""
    key.emit(clicks=key.clicks)
    key.clear()


visits = Keyed("click_counts", visit_clicks, ("visit",), "clicks bigint", "clicks bigint", count, {"over": tell})
pipeline = Pipeline(stream=visit_clicks, views=(visits,))
