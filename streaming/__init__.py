"""The streaming room's public API: declarations, and what runs them on Spark."""

from streaming.base import StreamingError
from streaming.clocks import Ascending, BoundedOutOfOrderness, Clock, Punctuated
from streaming.declare import (
    Aggregate,
    Delivery,
    Keyed,
    Pipeline,
    RowFunction,
    Rule,
    Selected,
    Side,
    Stream,
    Windowed,
    WindowFunction,
    broken_modules,
    declared_pipelines,
    epoch_millis,
    find_pipeline,
    micros,
)
from streaming.declare import aggregates as agg
from streaming.formats import Avro, Csv, Json, Text
from streaming.keyed import Key, count_window, latest
from streaming.lake import Lake, Settings
from streaming.operations import maintain, repair
from streaming.service import drain
from streaming.sinks import Console, CsvFiles, JsonLines, ParquetFiles, Postgres, Rest, Socket, Target
from streaming.sources import CommittedOffsets, Files, Generator, Kafka, OffsetReader, OffsetSource, Table, noise
from streaming.spark import start_session
from streaming.views import correct, plan
from streaming.windows import Custom, LocalDays, SessionWindow, Sliding, Tumbling, Window

__all__ = [
    "Aggregate",
    "Ascending",
    "Avro",
    "BoundedOutOfOrderness",
    "Clock",
    "CommittedOffsets",
    "Console",
    "Csv",
    "CsvFiles",
    "Custom",
    "Delivery",
    "Files",
    "Generator",
    "Json",
    "JsonLines",
    "Kafka",
    "Key",
    "Keyed",
    "Lake",
    "LocalDays",
    "OffsetReader",
    "OffsetSource",
    "ParquetFiles",
    "Pipeline",
    "Postgres",
    "Punctuated",
    "Rest",
    "RowFunction",
    "Rule",
    "Selected",
    "SessionWindow",
    "Settings",
    "Side",
    "Sliding",
    "Socket",
    "Stream",
    "StreamingError",
    "Table",
    "Target",
    "Text",
    "Tumbling",
    "Window",
    "WindowFunction",
    "Windowed",
    "agg",
    "broken_modules",
    "correct",
    "count_window",
    "declared_pipelines",
    "drain",
    "epoch_millis",
    "find_pipeline",
    "latest",
    "maintain",
    "micros",
    "noise",
    "plan",
    "repair",
    "start_session",
]
