"""Targets of deliveries: their contract, and those there are."""

from typing import TYPE_CHECKING

from streaming.base.fronts import make_front

if TYPE_CHECKING:
    from streaming.sinks.delta_table import DeltaTable
    from streaming.sinks.encoding import csv_table, json_objects, plain_texts
    from streaming.sinks.files import CsvFiles, JsonLines, ParquetFiles
    from streaming.sinks.iceberg_table import IcebergTable
    from streaming.sinks.kafka import KafkaTopic
    from streaming.sinks.objects import Objects
    from streaming.sinks.opensearch import OpenSearchIndex
    from streaming.sinks.postgres import Postgres
    from streaming.sinks.printing import Console, Socket
    from streaming.sinks.rest import Rest
    from streaming.sinks.sink import (
        CHANGE,
        DELETE,
        FAILURE,
        RESULT_ID,
        REVISION,
        TIME,
        Comparison,
        Delivered,
        Guarantee,
        NumberedBatch,
        PutAside,
        RefusedRow,
        Sink,
        Target,
    )
    from streaming.sinks.together import Together
    from streaming.sinks.two_phase import TwoPhase

make_front(__name__)
