"""The rows that made one result of an operator over windows, recomputed from exactly these."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce, singledispatch
from math import isfinite
from operator import and_
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from streaming.base import (
    BATCH,
    DAY,
    INGESTED_AT,
    ORDER,
    ORIGIN,
    STAMP,
    WINDOW,
    earlier,
    is_same,
    literal,
    names_in,
    told,
)
from streaming.declare import UPDATES, OverWindows, Stream, TwoSided, Windowed
from streaming.lake import Lake
from streaming.operators import Progress, open_side
from streaming.provenance.answer import (
    TAKEN_BACK,
    Evidence,
    InputRow,
    Question,
    Row,
    are_same,
    evidence_of,
    waits_for_correction,
)
from streaming.provenance.changes import changes_of_group, corrections_of_look, newest_look
from streaming.provenance.groups import keys_of_streams
from streaming.provenance.log_rows import (
    LogRows,
    as_frame,
    as_input,
    by_place,
    frame_of,
    identity_of,
    place_of,
    rows_near,
)
from streaming.tables import Between, FilesRead, contents_on
from streaming.views import computation_of

_LATE = "_late"


@evidence_of.register
def _(operator: OverWindows, question: Question) -> Evidence:
    lake, key = question.lake, question.key
    window = (key["window_start"], key["window_end"])
    through = {} if question.what == "first" else _counted_through(lake, operator, key)
    group = _Group.read(question, operator, window)
    counting = [not row[_LATE] or row[BATCH] <= through.get(stream, -1) for stream, row in group.rows]
    recomputed = group.results(counting, window)
    inputs = tuple(_inputs(operator, question, group, counting))
    rejected = tuple(row for log in group.logs.values() for row in log.rejected)
    files = sum((log.files for log in group.logs.values()), FilesRead())
    late = [row for row in inputs if row.late]
    return Evidence(
        inputs,
        recomputed,
        rejected,
        changes_of_group(lake, operator, key, late),
        tuple(_notes(operator, question, late)),
        files=files,
        versions={lake.log(log.stream): log.version for log in group.logs.values()},
        is_due=_is_due(operator, question),
        roundings={} if are_same(question.published, recomputed) else group.roundings(counting),
    )


def _is_due(operator: OverWindows, question: Question) -> bool:
    """True where what is published of the question goes beyond the end of the window."""
    lake, at = question.lake, None
    if question.what == "current" and lake.cut is None:
        # Where there is none, readers are shown first results.
        at = newest_look(lake, operator)
    watermark = Progress.as_read(lake, operator).watermark if at is None else at.watermark
    return watermark is not None and question.key["window_end"] <= operator.window.closed_by(watermark)


def _counted_through(lake: Lake, operator: OverWindows, key: Row) -> Mapping[str, int]:
    """The batch of each log up to which late rows count in what is published of a group; none where no late row does.

    It is that of the newest correction or update which the newest look has seen.
    """
    if lake.cut is not None:
        # As of older batches corrections are computed for these.
        return {stream.name: lake.cut.get(stream.name, -1) for stream in operator.reads} if operator.corrected else {}
    look = newest_look(lake, operator)
    found = list[tuple[int, bool, Mapping[str, int]]]()
    if operator.corrected:
        table = corrections_of_look(lake, operator, look)
        for row in [] if table is None else _of_key(table, operator, key):
            through = {stream.name: row[name] for name, stream in operator.counted_through.items()}
            found.append((sum(through.values()), True, through))
    if operator.updated:
        table = open_side(lake, operator, UPDATES)
        for row in [] if table is None else _of_key(table, operator, key):
            if look is None or row[BATCH] <= look.updates:
                found.append((row[BATCH], False, {operator.reads[0].name: row[BATCH]}))
    return max(found, key=lambda each: each[:2])[2] if found else {}


def _of_key(table: DeltaTable, operator: OverWindows, key: Row) -> list[dict[str, Any]]:
    """The rows of a table of results, partitioned by day, that stand for the window of a key."""
    start, end = key["window_start"], key["window_end"]
    days = {start.astimezone(UTC).date()} if not operator.window.merging else _days_of(table)
    names = [field.name for field in table.schema().fields]
    rows = contents_on(table, days, names).to_pylist()
    of_key = [row for row in rows if all(is_same(row[name], key[name]) for name in operator.by)]
    if operator.window.merging:
        return [row for row in of_key if row["window_start"] <= end and row["window_end"] >= start]
    return [row for row in of_key if (row["window_start"], row["window_end"]) == (start, end)]


def _days_of(table: DeltaTable) -> set[Any]:
    added = table.get_add_actions(flatten=True)
    return {*added[f"partition.{DAY}"].to_pylist()}


@dataclass(frozen=True)
class _Group:
    """The pairs of row and window of one group: the `rows`, each with the name of its stream, and `pairs` with types.

    `logs` are all rows of its key at its times, those that no pair has among them.
    """

    question: Question
    operator: OverWindows
    logs: Mapping[str, LogRows]
    rows: Sequence[tuple[str, dict[str, Any]]]
    pairs: pa.Table
    schema: StructType
    bounds: tuple[datetime, datetime]

    @classmethod
    def read(cls, question: Question, operator: OverWindows, window: tuple[datetime, datetime]) -> _Group:
        """The group of a window; one of sessions has all that a late row may have joined to them."""
        bounds = window
        while True:
            between = _near(operator, bounds)
            logs = {
                stream.name: rows_near(question.lake, stream, keys, between)
                for stream, keys in keys_of_streams(operator, question.key).items()
            }
            frame = _pairs(question, operator, logs)
            of_group = frame if operator.window.merging else frame.where(_is_window(window))
            pairs = of_group.toArrow()
            rows = pairs.to_pylist()
            if not operator.window.merging:
                break
            hull = _hull([row[WINDOW] for row in rows], bounds)
            if hull == bounds:
                within = [bounds[0] <= row[WINDOW]["start"] and row[WINDOW]["end"] <= bounds[1] for row in rows]
                pairs = pairs.filter(pa.array(within, pa.bool_()))
                rows = pairs.to_pylist()
                break
            bounds = hull
        named = [_described(operator, row) for row in rows]
        return cls(question, operator, logs, named, pairs, frame.schema, bounds)

    def results(self, counting: Sequence[bool], window: tuple[datetime, datetime]) -> tuple[Row, ...]:
        """The results of those pairs that count, of the window, or where none is of it of those that touch it."""
        chosen = self.pairs.filter(pa.array(counting, pa.bool_()))
        frame = as_frame(self.question, chosen, self.schema)
        results = computation_of(self.operator).results(frame).select(*self.operator.columns).toArrow().to_pylist()
        of_window = [row for row in results if (row["window_start"], row["window_end"]) == window]
        near = [row for row in results if row["window_start"] <= window[1] and row["window_end"] >= window[0]]
        return tuple(of_window or near)

    def roundings(self, counting: Sequence[bool]) -> dict[str, float]:
        """The distance of doubles that the order of the pairs that count may make, of each aggregate that tells it."""
        aggregates = getattr(self.operator, "aggregates", {})
        told = {name: each.rounding for name, each in aggregates.items() if each.rounding is not None}
        if not told or not any(counting):
            return {}
        frame = as_frame(self.question, self.pairs.filter(pa.array(counting, pa.bool_())), self.schema)
        row = frame.agg(*(F.expr(sql).cast("double").alias(name) for name, sql in told.items())).collect()[0]
        # Of infinite summands everything would be near.
        return {name: row[name] for name in told if row[name] is not None and isfinite(row[name])}


def _near(operator: OverWindows, bounds: tuple[datetime, datetime]) -> Between:
    """The event times of all rows that may be in a window with these bounds, or in one that touches them."""
    window, (start, end) = operator.window, bounds
    if window.reach is None:
        return Between()
    if window.merging:
        return Between(earlier(start, window.reach), end)
    if window.expressions:
        return Between(earlier(start, window.reach), end + window.reach)
    return Between(start, end)


def _pairs(question: Question, operator: OverWindows, logs: Mapping[str, LogRows]) -> DataFrame:
    """The pairs of the rows, of the key alone."""
    pairs = computation_of(operator).pairs({name: frame_of(question, log) for name, log in logs.items()})
    same = [F.col(f"`{name}`").eqNullSafe(_constant(question.key[name])) for name in operator.by]
    return pairs.where(reduce(and_, same)) if same else pairs


def _constant(value: Any) -> Column:
    """A value as a literal of Spark's."""
    return literal(value) if isinstance(value, datetime) else F.lit(value)


def _is_window(window: tuple[datetime, datetime]) -> Column:
    return (F.col(f"{WINDOW}.start") == literal(window[0])) & (F.col(f"{WINDOW}.end") == literal(window[1]))


def _hull(windows: Iterable[Mapping[str, datetime]], bounds: tuple[datetime, datetime]) -> tuple[datetime, datetime]:
    """The bounds, with all windows that overlap or touch them, one after the other."""
    start, end = bounds
    for window in sorted(windows, key=lambda each: each["start"], reverse=True):
        if window["start"] <= end and window["end"] >= start:
            start, end = min(start, window["start"]), max(end, window["end"])
    for window in sorted(windows, key=lambda each: each["start"]):
        if window["start"] <= end and window["end"] >= start:
            start, end = min(start, window["start"]), max(end, window["end"])
    return start, end


@singledispatch
def _described(operator: OverWindows, pair: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The stream of a pair, and its row with the columns of the log as far as the pair has them."""
    raise NotImplementedError(type(operator).__name__)


@_described.register
def _(operator: Windowed, pair: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    return operator.of.name, pair


@_described.register
def _(operator: TwoSided, pair: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    side = next(each for each in operator.sides if each.name == pair["_side"])
    row = pair[f"_{side.name}"]
    of_log = {name: pair[name] for name in (BATCH, STAMP, _LATE)}
    return side.stream.name, {**row, **of_log, ORIGIN: row[ORDER][ORIGIN]}


def _inputs(
    operator: OverWindows,
    question: Question,
    group: _Group,
    counting: Sequence[bool],
) -> Iterable[InputRow]:
    """Every row of the key at the times of the window, in the order of the logs, and why some do not count."""
    streams = {stream.name: stream for stream in operator.reads}
    columns = {name: _columns_read(operator, stream) for name, stream in streams.items()}
    logs = {name: by_place(log.valid) for name, log in group.logs.items()}
    taken = _taken_back(group, counting)
    copies = _copies(operator, group, counting, taken)
    inputs, paired = [], set[tuple[str, tuple[int, str]]]()
    for number, (name, row) in enumerate(group.rows):
        place = place_of(row[BATCH], row[ORIGIN])
        paired.add((name, place))
        reason = _reason(operator, question, row, counting[number], number in taken, copies.get(number, 1))
        inputs.append(
            as_input(
                streams[name],
                {INGESTED_AT: None, **row, **logs[name].get(place, {})},
                columns[name],
                late=row[_LATE],
                counts=not reason,
                reason=reason,
            )
        )
    for name, rows in logs.items():
        stream = streams[name]
        for place, row in rows.items():
            is_here = group.bounds[0] <= row[stream.event_time] < group.bounds[1]
            if (name, place) not in paired and is_here:
                inputs.append(as_input(stream, row, columns[name], counts=False, reason=_left_out(operator)))
    return sorted(inputs, key=lambda row: (row.stream, row.batch, str(row.origin)))


def _columns_read(operator: OverWindows, stream: Stream) -> tuple[str, ...]:
    """The columns of a stream that a result is computed from."""
    read = {column for spec in operator.columns_of() for name, column in spec.of if name == stream.name}
    where = getattr(operator, "where", None)
    read |= {stream.event_time, *getattr(operator, "distinct", ()), *(names_in(where) if where else ())}
    return tuple(name for name in stream.columns if name in read)


def _taken_back(group: _Group, counting: Sequence[bool]) -> set[int]:
    """Those of the rows that count of which nothing is left: they are taken back, or take back another one."""
    standing: dict[tuple[str, str], list[int]] = {}
    gone = set[int]()
    order = sorted(range(len(group.rows)), key=lambda place: group.rows[place][1][BATCH])
    for place in order:
        name, row = group.rows[place]
        if not counting[place]:
            continue
        same = standing.setdefault((name, identity_of(row)), [])
        if as_input(_stream(group, name), {INGESTED_AT: None, **row}, ()).change < 0:
            gone.add(place)
            if same:
                gone.add(same.pop())
        else:
            same.append(place)
    return gone


def _stream(group: _Group, name: str) -> Stream:
    return next(each for each in group.operator.reads if each.name == name)


def _copies(operator: OverWindows, group: _Group, counting: Sequence[bool], taken: set[int]) -> dict[int, int]:
    """Which of the rows that agree in the columns of `distinct` each one is, by its place; the first one counts."""
    distinct = getattr(operator, "distinct", ())
    numbers: dict[int, int] = {}
    if not distinct:
        return numbers
    seen: dict[tuple[str, ...], int] = {}
    places = (place for place in range(len(group.rows)) if counting[place] and place not in taken)
    for place in sorted(places, key=lambda each: _log_order(group.rows[each][1])):
        values = tuple(repr(group.rows[place][1][name]) for name in distinct)
        numbers[place] = seen[values] = seen.get(values, 0) + 1
    return numbers


def _log_order(row: Mapping[str, Any]) -> tuple[int, list[tuple[bool, Any]]]:
    return row[BATCH], [(value is not None, value) for value in (row[ORIGIN] or {}).values()]


def _reason(
    operator: OverWindows, question: Question, row: Mapping[str, Any], counts: bool, taken: bool, copy: int
) -> str:
    if not counts:
        late = f"late: its window was closed at the watermark {told(row[STAMP])}"
        if question.what == "first":
            return late
        return f"{late}; {_waits(operator)}"
    if taken:
        return TAKEN_BACK
    return f"copy {copy} of a row that counts once" if copy > 1 else ""


def _waits(operator: OverWindows) -> str:
    if not operator.corrected and not operator.updated:
        return "left out as declared, late='drop'"
    return "it waits for a correction"


def _left_out(operator: OverWindows) -> str:
    where = getattr(operator, "where", None)
    if operator.diverts:
        return "left out: the view does not count it, or cannot compute it"
    return "in none of its windows" if where is None else f"left out by where: {where}"


def _notes(operator: OverWindows, question: Question, late: Sequence[InputRow]) -> Iterable[str]:
    lake = question.lake
    if operator.corrected:
        yield from waits_for_correction(question, question.key["window_start"], late)
    if not question.published:
        at = Progress.as_read(lake, operator)
        end = question.key["window_end"]
        closed = at.watermark is not None and end <= operator.window.closed_by(at.watermark)
        if not closed:
            yield f"its window is open: the watermark is {told(at.watermark)} and has to pass {told(end)}"
