"""The declarations that a user writes: frozen values, checked when they are built, without a Spark session."""

from typing import TYPE_CHECKING

from streaming.base.fronts import make_front

if TYPE_CHECKING:
    from streaming.declare import aggregates
    from streaming.declare.aggregates import Aggregate
    from streaming.declare.co_grouped import CoGrouped, CoGroupFunction
    from streaming.declare.columns import ColumnSpec, log_columns
    from streaming.declare.condition_rule import ConditionRule
    from streaming.declare.contract_readers import AffectedReader, affected_readers
    from streaming.declare.contract_terms import terms_of_operator, terms_of_stream
    from streaming.declare.delivered import CHANGES, DEAD, DEAD_LETTER, PROGRESS
    from streaming.declare.delivery import Delivery
    from streaming.declare.enriched import Enriched, LookupRequest
    from streaming.declare.freshness import Freshness, freshness_of
    from streaming.declare.functions import RowFunction, WindowFunction, check_callable, described, text_number
    from streaming.declare.history import VALID_FROM, VALID_TO, History
    from streaming.declare.join_keys import InputSide
    from streaming.declare.joined import LEFT_AT, RIGHT_AT, Joined
    from streaming.declare.keyed import (
        REPLACES_FROM,
        REPLACES_UNTIL,
        SESSION_START,
        Keyed,
        Order,
        micros,
        through_column,
    )
    from streaming.declare.late_policy import EACH_BATCH
    from streaming.declare.limits import Limits
    from streaming.declare.masks import (
        MASKED,
        MASKED_LABELS,
        ORIGIN_TYPES,
        WITHHELD,
        Drop,
        Hash,
        Last,
        Mask,
        MaskValue,
        check_of,
        nothing,
        salt_of,
    )
    from streaming.declare.operator import (
        CORRECTIONS,
        CURRENT,
        FAILED,
        FIRST,
        LATE,
        OPEN,
        PENDING,
        STATE,
        UNMATCHED,
        UPDATES,
        ExternalTable,
        OnError,
        Operator,
        TableSpec,
        corrections_of,
    )
    from streaming.declare.over_windows import OverWindows
    from streaming.declare.pinned import Pinned
    from streaming.declare.pipeline import Pipeline
    from streaming.declare.receiver import SUBSCRIPTIONS, Receiver, Subscriptions
    from streaming.declare.registry import (
        broken_modules,
        declared_pipelines,
        find_pipeline,
        modules,
        operator_in_lake,
        package_of,
        packages,
        view_folders,
        written_pipelines,
    )
    from streaming.declare.restarts import (
        ExponentialBackoff,
        Failure,
        FailureRate,
        FixedDelay,
        NoRestart,
        RestartStrategy,
    )
    from streaming.declare.rule import Rule
    from streaming.declare.selected import ELEMENT, Selected
    from streaming.declare.side import Side
    from streaming.declare.snapshots import Snapshots
    from streaming.declare.sql_view import View
    from streaming.declare.stream import Stream, epoch_millis
    from streaming.declare.two_sided import TwoSided
    from streaming.declare.usual import HourlySum, Usual, usual_of
    from streaming.declare.window_joined import WindowJoined
    from streaming.declare.windowed import Windowed

make_front(__name__)
