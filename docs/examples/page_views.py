"""Page views of news readers as sessions: visits, and what is read in one sitting."""

from streaming import BoundedOutOfOrderness, Files, Json, Pipeline, SessionWindow, Stream, Windowed, agg

page_views = Stream(
    name="page_views",
    description="One row per page view.",
    source=Files("landing/page_views"),
    format=Json("user string not null, article string, at timestamp not null"),
    event_time="at",
    clock=BoundedOutOfOrderness("1 hour"),
)

visits = Windowed(
    name="visits",
    of=page_views,
    by=("user",),
    window=SessionWindow("15 minutes"),
    aggregates={"views": agg.count()},
)


def sittings(gap: str = "30 minutes") -> Windowed:
    """Sessions that end when a user has read nothing for `gap`, with the number of different articles."""
    return Windowed(
        name="sittings",
        of=page_views,
        by=("user",),
        window=SessionWindow(gap),
        aggregates={"articles": agg.count_distinct("article")},
    )


pipeline = Pipeline(stream=page_views, views=(visits, sittings()))
