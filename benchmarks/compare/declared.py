"""The task as Tidemark declares it: readings by sensor and minute, with the rule that the others write by hand."""

from __future__ import annotations

from streaming import BoundedOutOfOrderness, Files, Json, Pipeline, Rule, Sliding, Stream, Tumbling, Windowed, agg
from streaming.sources import Source

FIELDS = "id string, at timestamp, value double, unit string, site string, note string"
DELAY = "10 seconds"
WINDOW = "1 minute"
PLAUSIBLE = "value between 0 and 1000"


def declared(landing: str, files_per_batch: int, windows: int = 1) -> Pipeline:
    """The pipeline over the files of `landing`; every row is in so many windows."""
    return declared_of(Files(landing, files_per_batch=files_per_batch), windows)


def declared_of(source: Source, windows: int = 1) -> Pipeline:
    """The same, wherever the readings come from."""
    readings = Stream(
        name="readings",
        source=source,
        format=Json(FIELDS),
        event_time="at",
        clock=BoundedOutOfOrderness(DELAY),
        rules=(Rule("value_plausible", PLAUSIBLE),),
    )
    window = Tumbling(WINDOW) if windows == 1 else Sliding(f"{windows} minutes", WINDOW)
    view = Windowed(
        "per_minute", readings, window, {"readings": agg.count(), "sum_value": agg.sum("value")}, by=("id",)
    )
    return Pipeline(readings, (view,))
