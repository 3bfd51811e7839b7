"""The foundation of all other packages: errors, names, intervals, SQL text, and the columns that the platform adds."""

from typing import TYPE_CHECKING

from streaming.base.fronts import make_front

if TYPE_CHECKING:
    from streaming.base import sql
    from streaming.base.access import LOOPBACK, Access, is_loopback, is_told
    from streaming.base.argument_checks import check_choice, check_mapping, check_number, check_tuple, check_type
    from streaming.base.clock_words import clock_word, is_known_time
    from streaming.base.columns import (
        ADDED,
        AT,
        BATCH,
        CLOCK,
        COPY,
        DAY,
        EVENT_TIME,
        INGESTED_AT,
        ORDER,
        ORIGIN,
        REASON,
        RETRACTED,
        REVISION,
        SIGN,
        STAMP,
        STEP_COLUMN,
        WARNED,
        WINDOW,
        WRITTEN_AT,
        constant,
    )
    from streaming.base.datasets import Dataset, dataset_at, topic_at
    from streaming.base.deferred import F, T, pc
    from streaming.base.discovery import BrokenModule, Discovery, discover, import_modules, import_or_explain
    from streaming.base.errors import (
        AccessError,
        BadInterval,
        BadName,
        BadQuery,
        CatalogError,
        ChangedDeclaration,
        CheckpointError,
        ContractError,
        CorrectionsFailed,
        DeclarationError,
        DeliveryPaused,
        DimensionError,
        ErasureError,
        FeedError,
        FencedError,
        FormatError,
        FunctionError,
        JarError,
        JavaError,
        LeaseError,
        LogError,
        MissingExtra,
        NotBuiltYet,
        NotThere,
        NoVersionError,
        OperatorError,
        ProgressError,
        QueryError,
        QueryFailed,
        ReadError,
        ReceiverError,
        RedeliveryError,
        RetractionError,
        RewrittenError,
        RuleViolation,
        SaltError,
        SavepointError,
        SettingsError,
        SinkError,
        SourceError,
        StoreError,
        StreamingError,
        SupervisorError,
        TidemarkError,
    )
    from streaming.base.extras import needs
    from streaming.base.fields import settle
    from streaming.base.frozen_mapping import FrozenMapping
    from streaming.base.http import (
        SECRET_HEADERS,
        check_url,
        host_of,
        is_only_place,
        password_in,
        place_in,
        retry_after,
    )
    from streaming.base.intervals import (
        END_OF_EVENT_TIMES,
        EPOCH,
        FIRST_EVENT_TIME,
        FIRST_INSTANT,
        LAST_MILLISECOND,
        MICROSECOND,
        MILLISECOND,
        date_literal,
        earlier,
        from_micros,
        interval,
        literal,
        optional_instant,
        optional_micros,
        signed_interval,
        to_micros,
        utc_now,
    )
    from streaming.base.kinds import by_kind
    from streaming.base.names import can_be_name, check_column_name, check_name, check_not_reserved
    from streaming.base.postgres import check_connection
    from streaming.base.release import DISTRIBUTION, RELEASE
    from streaming.base.sql import PARSER_ERRORS, Column, check_names, columns_of, names_in, replaced
    from streaming.base.sql_types import (
        Kind,
        Types,
        arrow_schema,
        check_aggregate,
        check_condition,
        check_kind,
        check_value,
        kind_of,
        times_among,
    )
    from streaming.base.sql_values import DECIMALS, ROUNDING, canonical, computes_as_sql, is_close, is_less, is_same
    from streaming.base.values import (
        DAY_MICROS,
        NAN,
        Encoder,
        FarDate,
        FarInstant,
        Reading,
        as_dict,
        as_type,
        day_of,
        days_of,
        encoder,
        instant_of,
        is_number_type,
        kept_as,
        normalizer,
        python_values,
        read_back,
        row_class,
    )
    from streaming.base.variables import filled, names_variables_only, variables_in
    from streaming.base.wording import counted, raised, said, shown, told, written

make_front(__name__)
