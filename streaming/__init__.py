"""The streaming room's public API: declarations, and what runs them on Spark."""

from streaming.aggregates import (
    Aggregate,
    at_greatest,
    at_least,
    collect,
    count,
    count_distinct,
    first,
    greatest,
    last,
    least,
    mean,
    median,
    mode,
    percentile,
    share,
    stddev,
    total,
)
from streaming.clock import Ascending, BoundedOutOfOrderness, Clock, Punctuated
from streaming.corrections import correct, plan
from streaming.custom import Custom
from streaming.drain import drain
from streaming.errors import StreamingError
from streaming.formats import Json
from streaming.functions import WindowFunction
from streaming.lake import Lake
from streaming.local_days import LocalDays
from streaming.maintenance import maintain
from streaming.pipeline import Pipeline
from streaming.registry import declared_pipelines, find_pipeline
from streaming.repair import repair
from streaming.rules import Rule
from streaming.session import start_session
from streaming.sessions import Session
from streaming.settings import Settings
from streaming.sources import Files
from streaming.stream import Stream, epoch_millis
from streaming.windowed import Windowed
from streaming.windows import Sliding, Tumbling, Window

__all__ = [
    "Aggregate",
    "Ascending",
    "BoundedOutOfOrderness",
    "Clock",
    "Custom",
    "Files",
    "Json",
    "Lake",
    "LocalDays",
    "Pipeline",
    "Punctuated",
    "Rule",
    "Session",
    "Settings",
    "Sliding",
    "Stream",
    "StreamingError",
    "Tumbling",
    "Window",
    "WindowFunction",
    "Windowed",
    "at_greatest",
    "at_least",
    "collect",
    "correct",
    "count",
    "count_distinct",
    "declared_pipelines",
    "drain",
    "epoch_millis",
    "find_pipeline",
    "first",
    "greatest",
    "last",
    "least",
    "maintain",
    "mean",
    "median",
    "mode",
    "percentile",
    "plan",
    "repair",
    "share",
    "start_session",
    "stddev",
    "total",
]
