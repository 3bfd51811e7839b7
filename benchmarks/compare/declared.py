"""The task as Tidemark declares it: readings by sensor and minute, with the rule that the others write by hand."""

from __future__ import annotations

from streaming import BoundedOutOfOrderness, Files, Json, Pipeline, Rule, Stream, Tumbling, Window, Windowed, agg
from streaming.sources import Source

FIELDS = "id string, at timestamp, value double, unit string, site string, note string"
DELAY = "10 seconds"
WINDOW = "1 minute"
PLAUSIBLE = "value between 0 and 1000"
MINUTES = Tumbling(WINDOW)


def declared(landing: str, files_per_batch: int, window: Window = MINUTES) -> Pipeline:
    """The pipeline over the files of `landing`."""
    return declared_of(Files(landing, files_per_batch=files_per_batch), window)


def declared_of(source: Source, window: Window = MINUTES) -> Pipeline:
    """The pipeline over readings of any source."""
    readings = Stream(
        name="readings",
        source=source,
        format=Json(FIELDS),
        event_time="at",
        clock=BoundedOutOfOrderness(DELAY),
        rules=(Rule("value_plausible", PLAUSIBLE),),
    )
    view = Windowed(
        "per_window", readings, window, {"readings": agg.count(), "sum_value": agg.sum("value")}, by=("id",)
    )
    return Pipeline(readings, (view,))
