"""Window joins and co-groups: the rows of both sides with their windows, what belongs together, and its results."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from operator import add, or_
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import ArrayType, DataType, StringType, StructField, StructType

from streaming.base import (
    BATCH,
    DAY,
    EVENT_TIME,
    ORDER,
    ORIGIN,
    SIGN,
    WINDOW,
    Encoder,
    FunctionError,
    arrow_schema,
    computes_as_sql,
    encoder,
    from_micros,
    python_values,
    raised,
    row_class,
)
from streaming.declare import (
    LEFT_AT,
    RIGHT_AT,
    STATE,
    CoGrouped,
    CoGroupFunction,
    InputSide,
    Stream,
    TwoSided,
    WindowJoined,
    described,
)
from streaming.lake import Lake
from streaming.log import OperatorCounts
from streaming.operators import (
    IDENTITY,
    OperatorRuntime,
    Progress,
    can_be_compared,
    net,
    runtime_of,
    signs,
    standing_among,
    whole_since,
)
from streaming.spark import as_json, first_failure
from streaming.tables import delta
from streaming.views import (
    Computation,
    OverWindowsRuntime,
    PartialColumns,
    computation_of,
    has_days,
    is_closed,
    kind_of,
    parted,
    possible_bounds,
    rows_as_partial,
    until,
)

SIDE, LATE = "_side", "_late"
LEFT, RIGHT = "_left", "_right"
"""The columns that hold the row of a pair, or in a group the rows, of either side."""
ROWS = {"left": LEFT, "right": RIGHT}
"""The columns that hold the row of a pair, or in a group the rows, by side."""

Of = TypeVar("Of", bound=TwoSided)
_MEETING, _KEPT = "_meeting", "_kept"

ERROR = "_error"
"""The column with why there are no results, beside columns that users have named."""

_OWN = "_own_window"
"""The field of a signed row of a session with the window that it would be in if it were alone."""
_OF_SIGNS = (SIGN, IDENTITY, _OWN)
"""The fields of a row that only those have of which some may take back others."""


class TwoSidedComputation(Computation[Of]):
    """The computation of a window join or a co-group, which brings the rows of two sides together.

    Pairs also have `_side`, and `_left` or `_right` with the row, null in the other. A pair is late by the clock of the
    row's own log, whichever log is ahead: by its stamp it is known for certain. Where rows of one of the logs may take
    back others, the rows of both sides have a sign and an identity.
    """

    def pairs(self, logs: Mapping[str, DataFrame]) -> DataFrame:
        return self._paired(logs, self.operator.window.bounds)

    def possible_pairs(self, logs: Mapping[str, DataFrame]) -> DataFrame:
        return self._paired(logs, partial(possible_bounds, self.operator.window))

    @property
    def side(self) -> Column:
        return F.col(SIDE)

    def is_of(self, stream: Stream) -> Column:
        return F.col(SIDE).isin(*(side.name for side in self.operator.sides if side.stream == stream))

    def counted_by(self, stream: Stream) -> str:
        operator = self.operator
        sides = sum(side.stream == stream for side in operator.sides)
        rules = f"{stream.event_time} {operator.window.fingerprint} {sides}"
        if operator.diverts and operator.window.expressions:
            rules += " but for rows without a window"
        return hashlib.sha256(rules.encode()).hexdigest()[:8]

    def sign(self, pairs: DataFrame) -> Column:
        return F.col(SIGN) if SIGN in pairs.columns else F.lit(1)

    def group(self, pairs: DataFrame, extra: Mapping[str, Column] | None = None) -> DataFrame:
        extras = [column.alias(name) for name, column in (extra or {}).items()]
        return kind_of(self.operator).group(
            pairs, self.operator.by, [*rows_as_partial(*ROWS.values()).of_rows, *extras]
        )

    def results(self, pairs: DataFrame) -> DataFrame:
        if SIGN not in pairs.columns or kind_of(self.operator).merges:
            return super().results(pairs)
        # The rows that stand are fewer, and a group holds all of its rows in memory.
        return self.finish(self.group(self._standing(pairs, [*self.operator.by, WINDOW])))

    def kept(self, results: StructType, pairs: DataFrame) -> PartialColumns:
        return rows_as_partial(*ROWS.values())

    def standing(self, pairs: DataFrame, kept: DataFrame | None) -> DataFrame:
        rows, keys = pairs.select(*self.operator.by, SIDE, *ROWS.values()), self.operator.by
        if kept is not None:
            rows = self._rows_of(kept).drop(WINDOW).unionByName(rows)
        own = self._standing(rows, keys, keeps_signs=True).withColumn(WINDOW, _of_row(_OWN))
        return kind_of(self.operator).group(own, keys, list(rows_as_partial(*ROWS.values()).of_rows))

    def sessions(self, hulls: DataFrame, *extra: str) -> DataFrame:
        return self._of_standing(hulls, *extra)

    def voidable(self, late: DataFrame) -> DataFrame | None:
        return late if _are_signed(late) else super().voidable(late)

    def counts(self, stream: Stream) -> OperatorCounts:
        """Those on both sides where the stream is both."""
        window, time = self.operator.window, F.col(f"`{stream.event_time}`")
        counted = [self._is_counted(side) for side in self.operator.sides if side.stream == stream]
        late = reduce(add, (F.when(each, window.late_windows(time, F.col("_watermark"))) for each in counted))
        unassigned = F.when(counted[0], window.has_no_window(time))
        return OperatorCounts(late=late, unassigned=unassigned, by=self.counted_by(stream))

    def late_pairs(self, logs: Mapping[str, DataFrame]) -> DataFrame:
        """Keys, window, `_side`, `_change` if rows are taken back, `_watermark`, `_batch`, and the row on its side."""
        operator, late = self.operator, self.pairs(logs).where("_late")
        hidden = (EVENT_TIME, ORDER, *_OF_SIGNS)
        shown = (F.col(ROWS[side.name]).dropFields(*hidden).alias(side.name) for side in operator.sides)
        bounds = (F.col(f"{WINDOW}.{bound}").alias(f"window_{bound}") for bound in ("start", "end"))
        sign = [SIGN] if SIGN in late.columns else []
        return late.select(*operator.by, *bounds, SIDE, *sign, "_watermark", "_batch", *shown)

    def failure(self, side: InputSide) -> Column | None:
        """Why the window of a row of a side's log cannot be computed, in words, or null; None where all can."""
        window, event_time = self.operator.window, F.col(f"`{side.stream.event_time}`")
        if not self.operator.diverts or not window.expressions:
            return None
        bounds = F.when(_is_timed(side), window.bounds(event_time))
        return first_failure([("window", ", ".join(window.expressions), bounds)], DAY)

    def _is_counted(self, side: InputSide) -> Column:
        """True for the valid rows of a side's log at a time around which there are days; false or null for all others.

        Where rows of which the window cannot be computed go to a side output, it is false for these.
        """
        fails = self.failure(side)
        return _is_timed(side) if fails is None else _is_timed(side) & fails.isNull()

    def _paired(self, logs: Mapping[str, DataFrame], bounds: Callable[[Column], Column]) -> DataFrame:
        is_signed = self.is_signed(logs)
        left, right = (
            self._of_side(side, logs[side.stream.name], bounds, is_signed=is_signed) for side in self.operator.sides
        )
        return left.unionByName(right, allowMissingColumns=True)

    def _of_side(
        self, side: InputSide, rows: DataFrame, bounds: Callable[[Column], Column], *, is_signed: bool
    ) -> DataFrame:
        event_time = F.col(f"`{side.stream.event_time}`")
        # Not over every row: what made a row rejected may make a window overflow.
        windows = F.explode(F.when(self._is_counted(side), bounds(event_time)))
        # Without an identity a row stands, as none has a sign that takes it back.
        never = {SIGN: F.lit(1), IDENTITY: F.lit(None).cast("string")}
        signed = {**never, **signs(side.stream, rows)} if is_signed else {}
        row = F.struct(
            *(f"`{name}`" for name in side.stream.columns),
            event_time.alias(EVENT_TIME),
            F.struct(event_time.alias("at"), "_batch", ORIGIN).alias(ORDER),
            *(column.alias(name) for name, column in signed.items()),
        )
        paired = rows.select(
            *(F.col(f"`{theirs}`").alias(ours) for ours, theirs in zip(self.operator.by, side.keys, strict=True)),
            row.alias(ROWS[side.name]),
            F.lit(side.name).alias(SIDE),
            *(column.alias(name) for name, column in signed.items() if name == SIGN),
            "_batch",
            "_watermark",
            windows.alias(WINDOW),
        )
        if is_signed and kind_of(self.operator).merges:
            own = F.col(ROWS[side.name]).withField(_OWN, F.col(WINDOW))
            paired = paired.withColumn(ROWS[side.name], own)
        return paired.withColumn(LATE, self.operator.window.late(F.col(WINDOW), F.col("_watermark")))

    def finish(self, groups: DataFrame, *extra: str) -> DataFrame:
        results = self._results(self._of_standing(groups, *extra), extra)
        return results.select(*self.operator.columns, *extra, F.to_date("window_start").alias(DAY))

    def _of_standing(self, groups: DataFrame, *extra: str) -> DataFrame:
        """The `groups` of the rows that stand: sessions fall apart, and a group without such a row is none."""
        if not _are_signed(groups):
            return groups
        per = [*self.operator.by, WINDOW, *extra]
        rows = self._rows_of(groups, *extra)
        if kind_of(self.operator).merges:
            rows = parted(self._standing(rows, per, keeps_signs=True), per, _of_row(_OWN))
            rows = rows.withColumns(_unsigned())
        else:
            rows = self._standing(rows, per)
        return rows.groupBy(*per).agg(*rows_as_partial(*ROWS.values()).of_rows)

    def _rows_of(self, groups: DataFrame, *extra: str) -> DataFrame:
        """The rows that `groups` keep, each with its side and the columns of its group."""
        types = {column: _element(groups, column) for column in ROWS.values()}

        def entries(side: str) -> Column:
            def entry(row: Column) -> Column:
                of = {name: row if name == ROWS[side] else F.lit(None).cast(kind) for name, kind in types.items()}
                return F.struct(F.lit(side).alias(SIDE), *(column.alias(name) for name, column in of.items()))

            return F.transform(ROWS[side], entry)

        entry = F.explode(F.concat(*map(entries, ROWS))).alias("_entry")
        kept = (*self.operator.by, WINDOW, *extra)
        return groups.select(*kept, entry).select(*kept, f"_entry.{SIDE}", *(f"_entry.{name}" for name in types))

    def _standing(self, rows: DataFrame, per: Sequence[str], *, keeps_signs: bool = False) -> DataFrame:
        """Those of the `rows` that no other one of the same `per` and side takes back, of each identity the newest."""
        newest = [f"{column}.{ORDER}.{name}" for column in ROWS.values() for name in (BATCH, ORIGIN)]
        signed = rows.withColumns({name: _of_row(name) for name in (SIGN, IDENTITY)})
        standing = net(signed, [*per, SIDE, IDENTITY], newest).drop(SIGN, IDENTITY)
        return standing if keeps_signs else standing.withColumns(_unsigned())

    def failed(self, logs: Mapping[str, DataFrame], lake: Lake, at: Progress) -> DataFrame:
        """The closed windows, or their pairs, and rows that fail, up to where the operator is.

        `error`, `row` (both rows, or the key, as JSON), `window_start` and `window_end` (null for a row),
        `_left_batch`, `_right_batch` and `_origin` of both (null for a window), `_day`. A window is of its rows in
        time, or of all where late ones are corrected.
        """
        operator, rows = self.operator, until(logs, at)
        origins: dict[str, DataType] = {
            side.name: rows[side.stream.name].schema[ORIGIN].dataType for side in operator.sides
        }
        parts = [self._failed_rows(side, rows[side.stream.name], origins) for side in operator.sides]
        counted = self.pairs(rows)
        for part in (counted.where("not _late"), *([counted] if operator.corrected else [])):
            groups = self._of_standing(self.group(part)).where(is_closed(operator, at))
            parts.append(self._failed_groups(groups, origins))
        told = reduce(DataFrame.unionByName, [part for part in parts if part is not None])
        told = told.where(can_be_compared(whole_since(lake, operator))).distinct()
        return told.orderBy("_left_batch", "_right_batch", ORIGIN, "window_start", "row")

    @abstractmethod
    def _results(self, groups: DataFrame, extra: tuple[str, ...]) -> DataFrame: ...

    @abstractmethod
    def _failed_groups(self, groups: DataFrame, origins: Mapping[str, DataType]) -> DataFrame: ...

    def _failed_rows(self, side: InputSide, log: DataFrame, origins: Mapping[str, DataType]) -> DataFrame | None:
        error = self.failure(side)
        if error is None:
            return None
        row = F.struct(*(F.col(f"`{name}`") for name in side.stream.columns)).alias(side.name)
        instant = F.lit(None).cast("timestamp")
        standing = standing_among(log.where(F.col(DAY).isNotNull()), side.stream)
        return standing.where(error.isNotNull()).select(
            error.alias("error"),
            as_json([row]).alias("row"),
            instant.alias("window_start"),
            instant.alias("window_end"),
            *_places({side.name: (F.col(BATCH), F.col(ORIGIN))}, origins),
            DAY,
        )


class _Joins(TwoSidedComputation[WindowJoined]):
    """Pairs of rows of both sides."""

    def voidable(self, late: DataFrame) -> DataFrame | None:
        operator = self.operator
        if _are_signed(late) or kind_of(operator).merges or not operator.diverts or operator.kind == "inner":
            # Where none is taken back, the rows of a fixed window only become more, and so do the results of a join.
            return super().voidable(late)
        # But for a row without a partner in place of which come pairs that fail.
        failing = self._failed_pairs(late).select(*operator.identity).distinct()
        same = [late[key].eqNullSafe(failing[key]) for key in operator.by]
        same += [F.col(f"{WINDOW}.{bound}") == failing[f"window_{bound}"] for bound in ("start", "end")]
        return late.join(failing, same, "left_semi")

    def _results(self, groups: DataFrame, extra: tuple[str, ...]) -> DataFrame:
        pairs = self._pairs(groups, extra)
        if self.operator.diverts:
            pairs = pairs.where(self._failure().isNull())
        computed = (F.expr(f"({sql}\n)").alias(name) for name, sql in self.operator.selected.items())
        return pairs.select(f"{_KEPT}.*", *computed)

    def _failed_groups(self, groups: DataFrame, origins: Mapping[str, DataType]) -> DataFrame:
        sides = {side.name: (F.col(ROWS[side.name]), side) for side in self.operator.sides}
        rows = (
            F.when(row.isNotNull(), F.struct(*(row[name].alias(name) for name in side.stream.columns))).alias(name)
            for name, (row, side) in sides.items()
        )
        return self._failed_pairs(groups).select(
            F.col(ERROR).alias("error"),
            as_json(rows).alias("row"),
            "window_start",
            "window_end",
            *_places({name: (row[ORDER][BATCH], row[ORDER][ORIGIN]) for name, (row, _) in sides.items()}, {}),
            F.to_date("window_start").alias(DAY),
        )

    def _failed_pairs(self, groups: DataFrame) -> DataFrame:
        """The pairs of which a column cannot be computed: `_error`, `_left`, `_right`, keys and window."""
        told = self._pairs(groups, ()).withColumn(ERROR, self._failure()).where(F.col(ERROR).isNotNull())
        return told.select(ERROR, LEFT, RIGHT, f"{_KEPT}.*")

    def _failure(self) -> Column:
        """The part of a pair that cannot be computed, in words; null where all can."""
        selected, types = self.operator.selected, self.operator.pair.types
        computed = (each for each in selected.items() if each[1].strip("`") not in types)
        return first_failure(((f"column {name!r}", sql, F.expr(f"({sql}\n)")) for name, sql in computed), _KEPT)

    def _pairs(self, groups: DataFrame, extra: tuple[str, ...]) -> DataFrame:
        """The columns that SQL over a pair reads, both rows, and in `_kept` what is not computed."""
        left, right = F.col(LEFT), F.col(RIGHT)
        apart = F.array(
            F.struct(left.alias(LEFT), F.slice(right, 1, 0).alias(RIGHT)),
            F.struct(F.slice(left, 1, 0).alias(LEFT), right.alias(RIGHT)),
        )
        together = F.array(F.struct(left.alias(LEFT), right.alias(RIGHT)))
        # A null equals nothing, so that rows of such a key are by themselves.
        has_null = reduce(or_, (F.col(key).isNull() for key in self.operator.by))
        kept = [*self.operator.by, "window_start", "window_end", *extra]
        meeting = F.explode(F.when(has_null, apart).otherwise(together)).alias(_MEETING)
        meetings = _bounded(groups).select(*kept, meeting)
        wanted = meetings.where(self._has_results()).select(*kept, f"{_MEETING}.*")
        by_left = wanted.select(*kept, RIGHT, F.explode_outer(LEFT).alias(LEFT))
        pairs = by_left.select(*kept, LEFT, F.explode_outer(RIGHT).alias(RIGHT))
        # Names of a pair may be those of the window.
        return pairs.select(F.struct(*kept).alias(_KEPT), LEFT, RIGHT, *self._pair())

    def _pair(self) -> Iterator[Column]:
        """The columns that SQL over a pair reads."""
        pair = self.operator.pair
        for side, names, at in ((LEFT, pair.left, LEFT_AT), (RIGHT, pair.right, RIGHT_AT)):
            yield from (F.col(side)[name].alias(alias) for name, alias in names.items())
            yield F.col(side)[EVENT_TIME].alias(at)

    def _has_results(self) -> Column:
        has_left, has_right = (F.size(F.col(_MEETING)[side]) > 0 for side in ROWS.values())
        return {"inner": has_left & has_right, "left": has_left, "outer": has_left | has_right}[self.operator.kind]


class _CoGroups(TwoSidedComputation[CoGrouped]):
    """The results that a function gives for the rows of both sides."""

    def voidable(self, late: DataFrame) -> DataFrame | None:
        return late

    def _results(self, groups: DataFrame, extra: tuple[str, ...]) -> DataFrame:
        operator, (given, kept) = self.operator, self._given(groups, extra)
        results = arrow_schema(operator.result)
        fields = [given.schema[name] for name in kept]
        schema = StructType([*fields, *from_arrow_schema(results, prefer_timestamp_ntz=True).fields])
        call = CallPerWindow(operator.name, operator.function, operator.by, kept, results, leaves_out=operator.diverts)
        return given.mapInArrow(call, schema)

    def _failed_groups(self, groups: DataFrame, origins: Mapping[str, DataType]) -> DataFrame:
        operator, (given, kept) = self.operator, self._given(groups, ())
        schema = StructType([*(given.schema[name] for name in kept), StructField(ERROR, StringType())])
        call = ErrorPerWindow(operator.name, operator.function, operator.by, kept, arrow_schema(operator.result))
        return given.mapInArrow(call, schema).select(
            F.col(ERROR).alias("error"),
            as_json(F.col(f"`{name}`") for name in operator.by).alias("row"),
            "window_start",
            "window_end",
            *_places({}, origins),
            F.to_date("window_start").alias(DAY),
        )

    def _given(self, groups: DataFrame, extra: tuple[str, ...]) -> tuple[DataFrame, tuple[str, ...]]:
        """The `groups` as a function sees them, and the names of what it is not given, but results have."""
        sides = self.operator.sides
        rows = [_in_order(F.col(ROWS[side.name]), side.stream.columns).alias(ROWS[side.name]) for side in sides]
        kept = (*self.operator.by, "window_start", "window_end", *extra)
        return _bounded(groups).select(*kept, *rows), kept


def _are_signed(groups: DataFrame) -> bool:
    """True for groups that keep rows of which some may take back others."""
    kept = _element(groups, LEFT)
    return isinstance(kept, StructType) and SIGN in kept.names


def _element(groups: DataFrame, column: str) -> DataType:
    kept = groups.schema[column].dataType
    assert isinstance(kept, ArrayType)
    return kept.elementType


def _of_row(name: str) -> Column:
    """A field of the row that one of the two sides has."""
    return F.coalesce(*(F.col(column)[name] for column in ROWS.values()))


def _unsigned() -> dict[str, Column]:
    """Either side without the fields that only signed rows have."""
    return {column: F.col(column).dropFields(*_OF_SIGNS) for column in ROWS.values()}


def _is_timed(side: InputSide) -> Column:
    return F.col(DAY).isNotNull() & has_days(F.col(f"`{side.stream.event_time}`"))


@runtime_of.register
def _(operator: TwoSided, lake: Lake) -> OperatorRuntime:
    return TwoSidedRuntime(operator, lake)


@computation_of.register
def _(operator: WindowJoined) -> TwoSidedComputation[WindowJoined]:
    return _Joins(operator)


@computation_of.register
def _(operator: CoGrouped) -> TwoSidedComputation[CoGrouped]:
    return _CoGroups(operator)


def _bounded(groups: DataFrame) -> DataFrame:
    """`groups` with `window_start` and `window_end`."""
    return groups.withColumns({"window_start": F.col(f"{WINDOW}.start"), "window_end": F.col(f"{WINDOW}.end")})


def _places(known: Mapping[str, tuple[Column, Column]], origins: Mapping[str, DataType]) -> list[Column]:
    """The batches and origins of both rows, null for one that is not `known`; `origins` are the types of the latter."""
    nothing = {name: (F.lit(None).cast("bigint"), F.lit(None).cast(kind)) for name, kind in origins.items()}
    of = {**nothing, **known}
    batches = [of[name][0].alias(f"_{name}_batch") for name in ("left", "right")]
    return [*batches, F.struct(*(of[name][1].alias(name) for name in ("left", "right"))).alias(ORIGIN)]


def _in_order(rows: Column, columns: tuple[str, ...]) -> Column:
    """The rows of one side by event time, then in the order of their log, with the columns that a function sees."""

    def compared(one: Column, other: Column) -> Column:
        return F.when(one[ORDER] < other[ORDER], -1).when(one[ORDER] > other[ORDER], 1).otherwise(0)

    def shown(row: Column) -> Column:
        return F.struct(*(row[name].alias(name) for name in columns))

    # Not sorted as they are: a row may hold a map, which has no order.
    return F.transform(F.array_sort(rows, compared), shown)


class TwoSidedRuntime(OverWindowsRuntime[TwoSided]):
    """It runs in steps over both logs; its corrections are batch reads of them."""

    def why_all(self, stream: Stream) -> str:
        return "has windows of two streams, of which only the rows tell how far back they reach"

    def described(self, analysis: Mapping[str, Any]) -> dict[str, str]:
        return _described(self.lake, self.operator)


def _described(lake: Lake, operator: TwoSided) -> dict[str, str]:
    state = delta.open_table(lake.table(operator, STATE)) if operator.window.merging else None
    keys = ", ".join(ours if ours == theirs else f"{ours} = {theirs}" for ours, theirs in operator.sides_on.items())
    what = f"what {described(operator.function)} gives" if isinstance(operator, CoGrouped) else "pairs"
    waits = "they wait for the correction of their window's day"
    return {
        "results": f"{what} of {operator.left.name} (left) and {operator.right.name} (right) by {keys} and window, "
        f"{operator.window.fingerprint}",
        "computed": "open sessions are kept in a table, with their rows; each step merges its rows into them"
        if operator.window.merging
        else "when the clocks of both logs have passed the end of a window, its rows are read from the logs",
        "state": "none"
        if state is None
        else f"{delta.size(lake.table(operator, STATE)):,} bytes in {operator.table_name(STATE)}",
        "late rows": "are dropped from the results; they stay in the logs" if operator.late == "drop" else waits,
    }


@dataclass(frozen=True)
class _PerWindow:
    """Calls the function of the co-group `name` with each group, of the key columns `keys`.

    Results have those columns of the groups that are `kept`.
    """

    name: str
    function: CoGroupFunction
    keys: tuple[str, ...]
    kept: tuple[str, ...]

    @computes_as_sql
    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield self._of_groups(batch)

    @abstractmethod
    def _of_groups(self, groups: pa.RecordBatch) -> pa.RecordBatch: ...

    def _each(self, groups: pa.RecordBatch, encode: Encoder) -> Iterator[list[Any] | FunctionError]:
        """The results of each group, or why it has none."""
        keys = _rows(self.keys, (python_values(groups.column(name)) for name in self.keys))
        bounds = (python_values(groups.column(name)) for name in ("window_start", "window_end"))
        sides = (map(_as_rows, python_values(groups.column(name))) for name in (LEFT, RIGHT))
        for given in zip(keys, *bounds, *sides, strict=True):
            yield self._called(encode, *given)

    def _called(
        self, encode: Encoder, key: Any, start: int, end: int, left: list[Any], right: list[Any]
    ) -> list[Any] | FunctionError:
        try:
            given = list(self.function(key, start, end, left, right))
            if any(each is None for each in given):
                raise ValueError("it gave None in place of a result")
            return [encode(each) for each in given]
        # Whatever a user's function raises is told with the key and window that it was called for.
        except (Exception, SystemExit) as error:
            values = ", ".join(f"{name}={value!r}" for name, value in zip(self.keys, key, strict=True))
            failed = FunctionError(
                f"function {described(self.function)} of co-group {self.name!r} failed for ({values}) and the window "
                f"from {from_micros(start)} to {from_micros(end)}: {raised(error)}. Nothing of its step was written; "
                "correct it and run again, or send such windows to a side output with on_error='side'."
            )
            failed.__cause__ = error
            return failed

    def _beside(self, groups: pa.RecordBatch, places: list[int], values: pa.RecordBatch) -> pa.RecordBatch:
        """`values`, with what is kept of the group at the place of each."""
        kept = groups.select(list(self.kept)).take(pa.array(places, pa.int64()))
        return pa.RecordBatch.from_arrays([*kept.columns, *values.columns], names=[*self.kept, *values.schema.names])


@dataclass(frozen=True)
class CallPerWindow(_PerWindow):
    """Gives the results of groups, in the columns of `results`.

    Where it `leaves_out` groups for which the function fails these have no results, else it raises.
    """

    results: pa.Schema
    leaves_out: bool = False

    def _of_groups(self, groups: pa.RecordBatch) -> pa.RecordBatch:
        kind = pa.struct(list(self.results))
        results: list[Any] = []
        places: list[int] = []
        for place, given in enumerate(self._each(groups, encoder(kind))):
            if isinstance(given, FunctionError):
                if self.leaves_out:
                    continue
                raise given
            results += given
            places += [place] * len(given)
        return self._beside(groups, places, pa.RecordBatch.from_struct_array(pa.array(results, kind)))


@dataclass(frozen=True)
class ErrorPerWindow(_PerWindow):
    """Gives for each group for which there are no `results` the `_error`."""

    results: pa.Schema

    def _of_groups(self, groups: pa.RecordBatch) -> pa.RecordBatch:
        errors: list[str] = []
        places: list[int] = []
        for place, given in enumerate(self._each(groups, encoder(pa.struct(list(self.results))))):
            if isinstance(given, FunctionError):
                assert isinstance(given.__cause__, Exception)
                errors.append(raised(given.__cause__))
                places.append(place)
        return self._beside(groups, places, pa.RecordBatch.from_pydict({ERROR: pa.array(errors, pa.string())}))


def _as_rows(rows: list[dict[str, Any]]) -> list[Any]:
    if not rows:
        return []
    as_row = partial(tuple.__new__, row_class(tuple(rows[0])))
    return [as_row(row.values()) for row in rows]


def _rows(names: tuple[str, ...], columns: Iterable[list[Any]]) -> Iterator[Any]:
    return map(partial(tuple.__new__, row_class(names)), zip(*columns, strict=True))
