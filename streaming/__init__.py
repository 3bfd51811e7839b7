"""The streaming room's public API: declarations, and what runs them on Spark."""

from typing import TYPE_CHECKING

from streaming.base.fronts import make_front

if TYPE_CHECKING:
    from streaming.base import ReceiverError, StreamingError, TidemarkError
    from streaming.clocks import Ascending, BoundedOutOfOrderness, Clock, Derived, Punctuated
    from streaming.declare import (
        Aggregate,
        CoGrouped,
        ConditionRule,
        Delivery,
        Drop,
        Enriched,
        ExponentialBackoff,
        ExternalTable,
        FailureRate,
        FixedDelay,
        Freshness,
        Hash,
        History,
        Joined,
        Keyed,
        Last,
        Limits,
        LookupRequest,
        NoRestart,
        Pinned,
        Pipeline,
        Receiver,
        RestartStrategy,
        RowFunction,
        Rule,
        Selected,
        Side,
        Snapshots,
        Stream,
        Subscriptions,
        Usual,
        View,
        Windowed,
        WindowFunction,
        WindowJoined,
        broken_modules,
        declared_pipelines,
        epoch_millis,
        find_pipeline,
        micros,
    )
    from streaming.declare import aggregates as agg
    from streaming.formats import Avro, Csv, Debezium, Json, Protobuf, Text
    from streaming.keyed import (
        CountEvictor,
        CountTrigger,
        DeltaEvictor,
        EventTimeTrigger,
        Evictor,
        Key,
        NeverTrigger,
        PurgingTrigger,
        RepeatTrigger,
        TimeEvictor,
        Trigger,
        ValueTrigger,
        absence,
        bucket_of,
        count_window,
        deduplicated,
        even_shares,
        flat_mapped,
        followed_by,
        iterated,
        latest,
        marker_window,
        not_followed_by,
        reduced,
        rolling,
        top,
        triggered_window,
    )
    from streaming.lake import Lake, Settings, parameter
    from streaming.log import Retraction, read_log, retractions
    from streaming.lookups import BlockingPostgresLookup, DimensionLookup, PostgresLookup
    from streaming.operations import (
        RetractionPreview,
        Rollout,
        RolloutPart,
        RowChoice,
        Savepoint,
        drop_savepoint,
        fork,
        lake_as_of,
        maintain,
        preview_retraction,
        recomputed,
        repair,
        restore,
        restore_to,
        retract,
        roll_out,
        rollout,
        savepoint,
        savepoints,
    )
    from streaming.operators import Effect, frame
    from streaming.provenance import Why, why
    from streaming.reading import Changed, Rows, changed, read
    from streaming.service import drain
    from streaming.sinks import (
        Console,
        CsvFiles,
        DeltaTable,
        IcebergTable,
        JsonLines,
        KafkaTopic,
        Objects,
        OpenSearchIndex,
        ParquetFiles,
        Postgres,
        Rest,
        Socket,
        Target,
        Together,
        TwoPhase,
    )
    from streaming.sources import (
        CommittedOffsets,
        Connector,
        CsvRecords,
        DltPoll,
        Files,
        Generator,
        HttpPoll,
        Kafka,
        Mqtt,
        OffsetReader,
        OffsetSource,
        PostgresChanges,
        RabbitMq,
        Received,
        Reception,
        SqsQueue,
        Table,
        TcpListener,
        TcpSocket,
        Then,
        Websocket,
        noise,
    )
    from streaming.spark import start_session
    from streaming.views import as_batch, correct, plan
    from streaming.windows import Custom, LocalDays, SessionWindow, Sliding, Tumbling, Window

make_front(__name__)
