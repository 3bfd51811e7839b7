"""What a user writes: frozen values that are checked when they are built, without a Spark session."""

from streaming.declare import aggregates
from streaming.declare.aggregates import Aggregate
from streaming.declare.callables import check_callable, described
from streaming.declare.co_grouped import CoGrouped, CoGroupFunction
from streaming.declare.columns import ColumnSpec, log_columns
from streaming.declare.condition_rule import ConditionRule
from streaming.declare.delivered import CHANGES, DEAD, DEAD_LETTER, PROGRESS, What
from streaming.declare.delivery import Delivery
from streaming.declare.enriched import Enriched, LookupRequest
from streaming.declare.functions import RowFunction, WindowFunction
from streaming.declare.input_side import InputSide
from streaming.declare.joined import Joined
from streaming.declare.joined_columns import LEFT_AT, RIGHT_AT
from streaming.declare.keyed import Keyed, Order, micros
from streaming.declare.keyed_columns import REPLACES_FROM, REPLACES_UNTIL, SESSION_START, through_column
from streaming.declare.late_policy import EACH_BATCH
from streaming.declare.limits import Limits
from streaming.declare.on_error import OnError
from streaming.declare.operator import Operator, TableSpec
from streaming.declare.packages import modules, package_of, packages
from streaming.declare.pinned import Pinned
from streaming.declare.pipeline import Pipeline
from streaming.declare.receiver import SUBSCRIPTIONS, Receiver, Subscriptions
from streaming.declare.registry import broken_modules, declared_pipelines, find_pipeline
from streaming.declare.restarts import ExponentialBackoff, Failure, FailureRate, FixedDelay, NoRestart, RestartStrategy
from streaming.declare.rule import Rule
from streaming.declare.selected import Selected
from streaming.declare.selected_columns import ELEMENT
from streaming.declare.side import Side
from streaming.declare.stream import Stream, epoch_millis
from streaming.declare.suffixes import (
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
    corrections_of,
)
from streaming.declare.two_sided import TwoSided
from streaming.declare.window_joined import WindowJoined
from streaming.declare.windowed import Windowed
