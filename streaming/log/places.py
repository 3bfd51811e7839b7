"""Where each part of a stream's ingest is computed: by the tasks that read the payloads, or by Spark, and then why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, BooleanType, DataType, MapType, StructType, TimestampType

from streaming.base import ORIGIN, names_in
from streaming.declare import ConditionRule, Rule, Stream
from streaming.log.batches import OperatorCounts
from streaming.log.judgement import Counted, JudgedRule, JudgedTime, Judgement, WatchedRule, broken_rule
from streaming.spark import ArrowExpression, Unproven, arrow_expressions

Kind = Literal[
    "payloads",
    "format",
    "derived column",
    "rule",
    "deletes",
    "clock",
    "time of a row",
    "source partition",
    "late",
    "unassigned",
]
"""The kinds of parts: `late` and `unassigned` are what the commit counts for an operator."""
_Found = Mapping[str, ArrowExpression | Unproven]


@dataclass(frozen=True)
class Place:
    """Where one part of a stream's ingest is computed: in tasks, or in Spark, which then has a `reason`.

    `after`: Spark computes it over the files that the tasks have written; `before`: it hands them what it reads. Where
    neither is so, it ingests the whole stream.
    """

    kind: Kind
    name: str
    sql: str = ""
    reason: str = ""
    after: bool = False
    before: bool = False


@dataclass(frozen=True)
class Places:
    """The places of all parts. Without a `judgement` Spark ingests the whole stream.

    `rules` and `counts` are left to Spark, over what the tasks have written: rules, and names of operators.
    """

    parts: tuple[Place, ...]
    judgement: Judgement | None
    rules: tuple[Rule, ...] = ()
    counts: frozenset[str] = frozenset()


def computed(parsed: DataFrame, stream: Stream) -> DataFrame:
    """Every expression of the stream over its `parsed` rows, each under its kind and name."""
    frame, origin = parsed, F.col(ORIGIN)
    for name, sql in stream.derived.items():
        frame = frame.withColumn(name, F.expr(sql))
    expressions = {
        **{_key("derived column", name): F.col(f"`{name}`") for name in stream.derived},
        **{_key("rule", rule.name): F.expr(rule.condition) for rule in stream.rules},
        _key("time of a row"): F.unix_micros(stream.source.time_of(origin)),
        _key("source partition"): stream.source.partition_of(origin),
    }
    if stream.clock.moved_by is not None:
        expressions[_key("clock")] = F.expr(stream.clock.moved_by)
    if stream.exempt is not None:
        expressions[_key("deletes")] = F.expr(stream.exempt)
    return frame.select(*(column.alias(key) for key, column in expressions.items()))


def derived_types(expressions: StructType, stream: Stream) -> dict[str, DataType]:
    """The types of the derived columns, as `computed` has them."""
    return {name: expressions[_key("derived column", name)].dataType for name in stream.derived}


def is_plain(expressions: StructType, stream: Stream) -> bool:
    """True where rules and the clock's condition are conditions, and a derived event time is an instant."""
    conditions = [
        field for field in expressions if field.name.startswith((_key("rule"), _key("clock"), _key("deletes")))
    ]
    time = derived_types(expressions, stream).get(stream.event_time, TimestampType())
    return isinstance(time, TimestampType) and all(isinstance(each.dataType, BooleanType) for each in conditions)


def places_of(
    expressions: DataFrame, stream: Stream, schema: StructType, counts: Mapping[str, OperatorCounts]
) -> Places:
    """The places of the parts of a stream, whose `expressions` are those of `computed`; `schema` is that of its log."""
    rows = expressions.sparkSession.createDataFrame([], schema)
    columns = {
        **{_key("late", name): each.late for name, each in counts.items()},
        **{_key("unassigned", name): each.unassigned for name, each in counts.items()},
    }
    found: dict[str, ArrowExpression | Unproven] = dict(arrow_expressions(expressions))
    if columns:
        found |= arrow_expressions(rows.select(*(column.alias(key) for key, column in columns.items())))
    parts = tuple(_parts(stream, schema, counts, found))
    if any(part.reason and not (part.after or part.before) for part in parts):
        return Places(parts, None)
    to_spark = {part.name for part in parts if part.kind == "rule" and part.reason}
    counted = frozenset(part.name for part in parts if part.kind in ("late", "unassigned") and part.reason)
    proven = {key: each for key, each in found.items() if isinstance(each, ArrowExpression)}
    return Places(
        parts,
        _judgement(
            stream,
            schema,
            proven,
            [name for name in counts if name not in counted],
            is_partial=any(rule.rejects for rule in stream.rules if rule.name in to_spark),
        ),
        tuple(rule for rule in stream.rules if rule.name in to_spark),
        counted,
    )


def _parts(stream: Stream, schema: StructType, counts: Mapping[str, OperatorCounts], found: _Found) -> list[Place]:
    form = stream.format
    has_decoder = form.decoder is not None
    left, parts = stream.source.left_to_spark, []
    if left:
        parts.append(Place("payloads", type(stream.source).__name__, reason=left, before=True))
    parts.append(Place("format", type(form).__name__, reason="" if has_decoder else "it has no decoder in Python"))
    for name, sql in stream.derived.items():
        type_ = schema[name].dataType
        reason = _reason(found[_key("derived column", name)]) or _against_type(type_, name == stream.event_time)
        parts.append(Place("derived column", name, sql, reason))
    for rule in stream.rules:
        if isinstance(rule, ConditionRule):
            parts.append(Place("rule", rule.name, rule.condition, "Spark is asked about conditions that rows have"))
        else:
            # Files have no value any more that is masked, by which the rule could be judged.
            after = not names_in(rule.condition) & stream.masked_columns
            parts.append(Place("rule", rule.name, rule.condition, _reason(found[_key("rule", rule.name)]), after=after))
    if stream.clock.moved_by is not None:
        parts.append(Place("clock", "", stream.clock.moved_by, _reason(found[_key("clock")])))
    if stream.exempt is not None:
        parts.append(Place("deletes", "", stream.exempt, _reason(found[_key("deletes")])))
    parts.append(Place("time of a row", "", reason=_reason(found[_key("time of a row")])))
    if stream.source.partitioned:
        parts.append(Place("source partition", "", reason=_reason(found[_key("source partition")])))
    kinds: tuple[Kind, Kind] = ("late", "unassigned")
    parts += [Place(kind, name, "", _reason(found[_key(kind, name)]), after=True) for name in counts for kind in kinds]
    return parts


def _judgement(
    stream: Stream,
    schema: StructType,
    found: Mapping[str, ArrowExpression],
    counts: list[str],
    *,
    is_partial: bool,
) -> Judgement:
    of_time = stream.payload_of((stream.event_time,))
    rules = [rule for rule in stream.rules if rule.rejects and _key("rule", rule.name) in found]
    watched = [rule for rule in stream.watched if _key("rule", rule.name) in found]
    return Judgement(
        payload=tuple(column.name for column in stream.format.columns),
        derived={name: found[_key("derived column", name)] for name in stream.derived},
        time=JudgedTime(
            stream.event_time,
            stream.clock,
            of_time,
            of_time if stream.event_time in stream.derived else (),
            found.get(_key("deletes")),
        ),
        rules=tuple(
            JudgedRule(
                broken_rule(rule.name, rule.condition),
                found[_key("rule", rule.name)],
                stream.payload_of(names_in(rule.condition)),
            )
            for rule in rules
        ),
        watched=tuple(WatchedRule(rule.name, found[_key("rule", rule.name)]) for rule in watched),
        is_partial=is_partial,
        moved_by=found.get(_key("clock")),
        source_time=found[_key("time of a row")],
        partition=found[_key("source partition")] if stream.source.partitioned else None,
        counts={name: Counted(found[_key("late", name)], found[_key("unassigned", name)]) for name in counts},
        keep_raw=stream.keep_raw,
        types=to_arrow_schema(schema, timezone="UTC"),
    )


def _key(kind: Kind, name: str = "") -> str:
    return f"{kind} {name}"


def _reason(found: ArrowExpression | Unproven) -> str:
    return found.reason if isinstance(found, Unproven) else ""


def _against_type(type_: DataType, is_event_time: bool) -> str:
    # What is within a value need be no time that Python can read, as `_origin` may have.
    if isinstance(type_, ArrayType | MapType | StructType):
        return f"values of type {type_.simpleString()} are looked into by Spark"
    if is_event_time and not isinstance(type_, TimestampType):
        return f"the event time is of type {type_.simpleString()}"
    return ""
