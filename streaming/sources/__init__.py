"""Sources: where payloads come from, with their origin."""

from typing import TYPE_CHECKING

from streaming.base.fronts import make_front

if TYPE_CHECKING:
    from streaming.sources.file_payloads import CsvRecords
    from streaming.sources.files import Files
    from streaming.sources.generator import Generator, noise
    from streaming.sources.kafka import CommittedOffsets, Kafka
    from streaming.sources.landed_files import matcher
    from streaming.sources.offsets import OffsetReader, Offsets, OffsetSource
    from streaming.sources.receivers import (
        Connector,
        DltPoll,
        HttpPoll,
        LandingFolder,
        LandingGuarantee,
        Mqtt,
        PostgresChanges,
        RabbitMq,
        Received,
        Reception,
        TcpListener,
        TcpSocket,
        Websocket,
        landed_name,
    )
    from streaming.sources.source import (
        FileRecords,
        Memory,
        PayloadPart,
        Reading,
        Source,
        SourceBacklog,
        SourceComparison,
        Taken,
        backlog_numbers,
        by_unit,
        largest_partitions,
        older_copy,
    )
    from streaming.sources.sqs_queue import SqsQueue
    from streaming.sources.table import Table, UnitIndex, UnitTable, changes_of, check_has_side, unit_table_of
    from streaming.sources.then import Then

make_front(__name__)
