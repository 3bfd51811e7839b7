"""The streaming room's public API: declarations, and what runs them on Spark."""

from streaming.aggregates import Aggregate, count, greatest, least, mean, share, total
from streaming.clock import Ascending, BoundedOutOfOrderness, Clock, Punctuated
from streaming.corrections import correct, plan
from streaming.drain import drain
from streaming.errors import StreamingError
from streaming.formats import Json
from streaming.lake import Lake
from streaming.pipeline import Pipeline
from streaming.registry import declared_pipelines, find_pipeline
from streaming.repair import repair
from streaming.rules import Rule
from streaming.session import start_session
from streaming.settings import Settings
from streaming.sources import Files
from streaming.stream import Stream, epoch_millis
from streaming.windowed import Windowed
from streaming.windows import Tumbling

__all__ = [
    "Aggregate",
    "Ascending",
    "BoundedOutOfOrderness",
    "Clock",
    "Files",
    "Json",
    "Lake",
    "Pipeline",
    "Punctuated",
    "Rule",
    "Settings",
    "Stream",
    "StreamingError",
    "Tumbling",
    "Windowed",
    "correct",
    "count",
    "declared_pipelines",
    "drain",
    "epoch_millis",
    "find_pipeline",
    "greatest",
    "least",
    "mean",
    "plan",
    "repair",
    "share",
    "start_session",
    "total",
]
