"""Everything that a project of one's own imports, under one name.

What a name stands for is imported when it is first used, so that `import tidemark` loads neither Spark nor Dagster.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from platform_assets.pipeline.component import PipelinesComponent
    from platform_assets.pipeline.location import definitions
    from platform_assets.reports.dimension import Dimension
    from platform_assets.reports.report import Report, Section
    from platform_assets.reports.sources import Sources
    from quality import Expectation, Suite, always, mostly_absent, nothing_from, of_type, of_types, unique
    from streaming import (
        Aggregate,
        Ascending,
        Avro,
        BoundedOutOfOrderness,
        Clock,
        CommittedOffsets,
        Connector,
        Console,
        Csv,
        CsvFiles,
        Custom,
        Debezium,
        Delivery,
        Files,
        Generator,
        HttpPoll,
        Json,
        JsonLines,
        Kafka,
        Key,
        Keyed,
        Lake,
        LocalDays,
        OffsetReader,
        OffsetSource,
        ParquetFiles,
        Pipeline,
        Postgres,
        Punctuated,
        Received,
        Receiver,
        ReceiverError,
        Reception,
        Rest,
        RowFunction,
        Rule,
        Selected,
        SessionWindow,
        Settings,
        Side,
        Sliding,
        Socket,
        Stream,
        StreamingError,
        Subscriptions,
        Table,
        Target,
        TcpSocket,
        Text,
        Tumbling,
        Websocket,
        Window,
        Windowed,
        WindowFunction,
        agg,
        correct,
        count_window,
        drain,
        epoch_millis,
        latest,
        maintain,
        micros,
        noise,
        plan,
        repair,
        start_session,
    )

_HOMES = {
    "platform_assets.pipeline.component": ("PipelinesComponent",),
    "platform_assets.pipeline.location": ("definitions",),
    "platform_assets.reports.dimension": ("Dimension",),
    "platform_assets.reports.report": ("Report", "Section"),
    "platform_assets.reports.sources": ("Sources",),
    "quality": ("Expectation", "Suite", "always", "mostly_absent", "nothing_from", "of_type", "of_types", "unique"),
}
"""The modules of the names that the streaming room does not have."""

__all__ = [
    "Aggregate",
    "Ascending",
    "Avro",
    "BoundedOutOfOrderness",
    "Clock",
    "CommittedOffsets",
    "Connector",
    "Console",
    "Csv",
    "CsvFiles",
    "Custom",
    "Debezium",
    "Delivery",
    "Dimension",
    "Expectation",
    "Files",
    "Generator",
    "HttpPoll",
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
    "PipelinesComponent",
    "Postgres",
    "Punctuated",
    "Received",
    "Receiver",
    "ReceiverError",
    "Reception",
    "Report",
    "Rest",
    "RowFunction",
    "Rule",
    "Section",
    "Selected",
    "SessionWindow",
    "Settings",
    "Side",
    "Sliding",
    "Socket",
    "Sources",
    "Stream",
    "StreamingError",
    "Subscriptions",
    "Suite",
    "Table",
    "Target",
    "TcpSocket",
    "Text",
    "Tumbling",
    "Websocket",
    "Window",
    "WindowFunction",
    "Windowed",
    "agg",
    "always",
    "correct",
    "count_window",
    "definitions",
    "drain",
    "epoch_millis",
    "latest",
    "maintain",
    "micros",
    "mostly_absent",
    "noise",
    "nothing_from",
    "of_type",
    "of_types",
    "plan",
    "repair",
    "start_session",
    "unique",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'tidemark' has no name {name!r}; it has: {', '.join(__all__)}.")
    home = next((module for module, names in _HOMES.items() if name in names), "streaming")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return __all__
