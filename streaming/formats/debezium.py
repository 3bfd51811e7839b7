"""Debezium: the changes of a database's rows, in the envelopes that its connectors write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from streaming.base import DeclarationError, F, T, check_column_name, check_type, sql
from streaming.formats.avro import Avro
from streaming.formats.avro_types import Schema, columns_of, members_of, named_in, parsed
from streaming.formats.debezium_json import (
    ADDED,
    AFTER,
    AT,
    BEFORE,
    CHANGE_AT,
    CHANGE_OP,
    CHANGE_SOURCE,
    CHANGE_UNAVAILABLE,
    FIRST_MILLI,
    LAST_MILLI,
    NOT_SENT_NUMBERS,
    OP,
    OPERATIONS,
    PLACEHOLDER,
    SOURCE,
    UNAVAILABLE,
    Decimals,
    Envelope,
    EnvelopeDecoder,
    no_operation,
    opened_envelope,
)
from streaming.formats.decoder import UNKNOWN, UNREADABLE, WRONG, Unreadable, arrow_types, decoded
from streaming.formats.format import Format, Revisions
from streaming.formats.json import Json
from streaming.formats.json_text import object_of, text_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_SIDES = ("before", "after")
_CHANGE, _HAS_ROW = "_change", "_has_row"


def _told(*names: str) -> str:
    """SQL for a number of the envelope's `source`, the first of those that is there."""
    numbers = (f"try_cast(get_json_object({CHANGE_SOURCE}, '$.{name}') as bigint)" for name in names)
    return f"coalesce({', '.join(numbers)})"


_FILE = f"try_cast(regexp_extract(get_json_object({CHANGE_SOURCE}, '$.file'), '([0-9]+)$', 1) as bigint)"
_COMMITTED, _CHANGED = (f"get_json_object({CHANGE_SOURCE}, '$.{name}')" for name in ("commit_lsn", "change_lsn"))
# A row of a snapshot has no place among the changes of a commit, and stands before them.
_BY_COMMIT = (
    f"named_struct('number', 0L, 'text', concat({_COMMITTED}, '/', coalesce({_CHANGED}, '')), "
    f"'position', coalesce({_told('event_serial_no')}, 0L), 'row', 0L)"
)
_BY_FILE = (
    f"named_struct('number', {_FILE}, 'text', '', 'position', {_told('pos')}, 'row', coalesce({_told('row')}, 0L))"
)
_PLACES = {
    "postgresql": f"named_struct('number', {_told('lsn')}, 'text', '', 'position', 0L, 'row', 0L)",
    "mysql": _BY_FILE,
    "mariadb": _BY_FILE,
    "sqlserver": _BY_COMMIT,
    "db2": _BY_COMMIT,
    "mongodb": f"named_struct('number', {_told('ts_ms')}, 'text', '', 'position', {_told('ord')}, 'row', 0L)",
}
_CASES = " ".join(f"when '{connector}' then {place}" for connector, place in _PLACES.items())
_PLACE = f"(case get_json_object({CHANGE_SOURCE}, '$.connector') {_CASES} end)"
_SEQUENCE = f"if({_PLACE}.number is null or {_PLACE}.text is null or {_PLACE}.position is null, null, {_PLACE})"
"""The place of a change in the database's own log, as its connector tells it; null for others, and where it lacks.

The fields of `source` are those of Debezium's documentation of each connector.
"""


@dataclass(frozen=True)
class Debezium(Format):
    """One envelope per payload, with `before`, `after`, `op`, `source` and `ts_ms`; its row becomes the columns.

    `of`: `Json` with the columns of the row, for envelopes in JSON, also inside `payload` beside a `schema`; or `Avro`
    with the schema of the whole envelope, as the registry has it.

    The row is `after`, of a delete `before`, of which many databases tell no more than the key: a missing value is no
    defect there. Beside it are `change_op` (`c`, `r` of a snapshot, `u`, `d`), `change_at` (`source.ts_ms`, or where
    that is missing or 0, `ts_ms`), `change_source`, the JSON of the envelope's `source`, with its position (`lsn`, or
    `file` and `pos`), and `change_unavailable`: the columns of which the database did not log the value, as the change
    left a large value as it was. Such a column is null, and if it is `not null` the row is rejected.

    In JSON each value is judged as `Json` does, and no number goes through a double. Where a `schema` stands beside
    the row, it tells how a column that is declared as decimal, date or timestamp is written: in base64 or as text; as
    a number of days; of milli-, micro- or nanoseconds. Without one, `decimals` says how the connector writes decimals:
    `"number"`; `"text"` (`decimal.handling.mode=string`); or `"base64"` (`precise`, Debezium's default), whose scale is
    the declared one. An instant is a number then: declare it as bigint, and derive the time.

    Truncations and messages (`t`, `m`) concern no row, and are rejected with their payload. A tombstone, a record
    without payload, is a row whose columns are null but for `change_at`, the record's time in Kafka: leave it out of
    what is counted by `where="change_op is not null"`.

    A stream with a `key` needs neither `sequence` nor `deletes`: a change has a place in the log of its database (`lsn`
    of Postgres; of MySQL and MariaDB `file`, `pos` and `row`; of SQL Server and Db2 `commit_lsn` and `change_lsn`; of
    MongoDB `ts_ms` and `ord`). Of other connectors declare `sequence`, such as `_origin.offset`. Tombstones are left
    out, and a column in `change_unavailable` keeps the value that stands.

    Raises:
        DeclarationError: the envelope has no row, or the row a column of a name that is added.
    """

    of: Json | Avro
    decimals: Decimals = "number"

    def __post_init__(self) -> None:
        check_type("`of` of Debezium", self.of, (Json, Avro), "Json with the row's columns, or Avro with the envelope")
        if self.decimals not in ("number", "text", "base64"):
            raise DeclarationError(
                f"decimals={self.decimals!r} of Debezium is unknown",
                "write 'number', 'text' or 'base64', as the connector writes them without a schema.",
                field="decimals",
                value=self.decimals,
            )
        names = [column.name.lower() for column in self.columns]
        for added in ADDED:
            if names.count(added.name) > 1:
                raise DeclarationError(
                    f"column {added.name!r} of the row is one that Debezium adds", "rename it.", column=added.name
                )

    @property
    def revisions(self) -> Revisions:
        """The order of changes by their place in the database's log; a delete; a tombstone concerns no row."""
        return Revisions("Debezium 1", _SEQUENCE, f"{CHANGE_OP} = 'd'", f"{CHANGE_OP} is not null", CHANGE_UNAVAILABLE)

    @property
    def masks_payloads(self) -> bool:
        return isinstance(self.of, Json)

    def masked_payload(self, payload: bytes, masks: Mapping[str, Callable[[bytes], bytes | None]]) -> bytes | None:
        """As the contract says, in both rows of an envelope in JSON."""
        told = {column.name for column in ADDED}
        if not isinstance(self.of, Json) or told & {path.partition(".")[0] for path in masks}:
            return None
        try:
            document = object_of(payload)
            envelope, _ = opened_envelope(document)
            within = self.of.field_masks(masks).within
            if envelope is None:
                return text_of(within(document)).encode()
            rows = {side: within(row) if type(row) is dict else None for side in _SIDES if (row := envelope.get(side))}
            others = {name: each for name, each in within(envelope).items() if name not in _SIDES}
            masked = {name: rows.get(name) if name in _SIDES else others[name] for name in envelope}
            if envelope is document:
                return text_of(masked).encode()
            beside = {name: each for name, each in document.items() if name != "payload"}
            return text_of({**within(beside), "payload": masked}).encode()
        except (Unreadable, UnicodeError):
            return None

    @cached_property
    def _row(self) -> tuple[sql.Column, ...]:
        return self.of.columns if isinstance(self.of, Json) else _OfAvro(self.of).row

    @property
    def columns(self) -> tuple[sql.Column, ...]:
        """The columns of the row, then what is told of the change."""
        return (*self._row, *ADDED)

    def parse(self, raw: DataFrame) -> DataFrame:
        """As the contract says; where `raw` has the origin of Kafka's records, a tombstone has the time of its own."""
        form, decimals = self.of, self.decimals
        if isinstance(form, Json):
            names = tuple(column.name for column in self.columns)
            types = arrow_types(self.columns)
            parsed = decoded(
                raw, self.columns, EnvelopeDecoder(names, types, None, form.columns, form.fields, decimals)
            )
        else:
            parsed = _parsed_avro(raw, _OfAvro(form))
        recorded = _times_of_records(raw)
        if not recorded:
            return parsed
        is_tombstone = F.col("_raw").isNull()
        return parsed.withColumn(CHANGE_AT, F.when(is_tombstone, F.coalesce(*recorded)).otherwise(F.col(CHANGE_AT)))


def _times_of_records(raw: DataFrame) -> list[Column]:
    """The times of records in `_origin`, where a source or one of those that it is made of tells them."""
    origin = raw.schema["_origin"].dataType if "_origin" in raw.columns else None
    return [] if origin is None else [F.col(path) for path in _times_within(origin, "_origin")]


def _times_within(type_: T.DataType, path: str) -> list[str]:
    if not isinstance(type_, T.StructType):
        return []
    if "timestamp" in type_.names:
        return [f"{path}.timestamp"]
    return [name for field in type_.fields for name in _times_within(field.dataType, f"{path}.{field.name}")]


def _parsed_avro(raw: DataFrame, envelope: Envelope) -> DataFrame:
    opened = envelope.opened(raw)
    operation = F.col(OP)
    deleted = operation == "d"
    is_change = F.coalesce(operation.isin(*OPERATIONS), F.lit(False))
    unreadable = (
        F.when(F.col("_raw").isNull(), F.lit(None))
        .when(F.col(UNREADABLE).isNotNull(), F.col(UNREADABLE))
        .when(operation.isNull(), F.lit("debezium: the payload is no envelope, it has no op"))
        .when(~is_change, F.format_string(f"debezium: {no_operation('%s')}", operation))
        .when(
            F.when(deleted, F.col(BEFORE).isNull()).otherwise(F.col(AFTER).isNull()),
            F.concat(F.lit("debezium: a change "), operation, F.lit(" without its row")),
        )
    )
    judged = opened.withColumn(UNREADABLE, unreadable.cast("string"))
    row = envelope.parsed(judged.withColumn("_deleted", F.coalesce(deleted, F.lit(False))))
    readable = F.col(UNREADABLE).isNull()

    def kept(value: Column) -> Column:
        return F.when(readable, value)

    time, milliseconds = _time(F.col(AT)), F.col(AT)
    unavailable = F.array_compact(F.array(*(F.when(_is_unavailable(each), each.name) for each in envelope.row)))
    added = {
        CHANGE_AT: F.when(
            milliseconds.isNotNull() & time.isNull(),
            F.concat(
                F.lit(f"type: {CHANGE_AT} is no number of milliseconds of the years 1 to 9999, got "), milliseconds
            ),
        )
    }
    reasons = (added.get(column.name, F.lit(None)).cast("string").alias(column.name) for column in ADDED)
    return row.select(
        *raw.columns,
        *(kept(F.when(~_is_unavailable(each), _value(each))).alias(each.name) for each in envelope.row),
        kept(operation).alias(CHANGE_OP),
        kept(time).alias(CHANGE_AT),
        kept(F.col(SOURCE)).alias(CHANGE_SOURCE),
        kept(F.when(F.size(unavailable) > 0, unavailable)).alias(CHANGE_UNAVAILABLE),
        UNREADABLE,
        F.when(readable, F.struct(*(_reason(each).alias(each.name) for each in envelope.row), *reasons)).alias(WRONG),
        kept(F.col(UNKNOWN)).alias(UNKNOWN),
    )


def _value(column: sql.Column) -> Column:
    return F.col(f"_row.`{column.name}`")


def _is_unavailable(column: sql.Column) -> Column:
    """True where the value is the placeholder for one that was not sent, and never null."""
    value, text = _value(column), F.lit(PLACEHOLDER)
    if column.type in ("string", "binary"):
        is_placeholder = value == text.cast(column.type)
    elif column.type in ("array<string>", "array<binary>"):
        is_placeholder = value == F.array(text).cast(column.type)
    elif column.type in ("array<int>", "array<bigint>"):
        is_placeholder = value == F.array(*map(F.lit, NOT_SENT_NUMBERS)).cast(column.type)
    elif column.type == "map<string,string>":
        is_placeholder = (F.map_keys(value) == F.array(text)) & (F.map_values(value) == F.array(text))
    else:
        return F.lit(False)
    return F.coalesce(is_placeholder, F.lit(False))


def _reason(column: sql.Column) -> Column:
    """Why a column has no value; a delete need not have one."""
    reason = F.col(f"_row_wrong.`{column.name}`")
    if not column.required:
        return reason
    is_refused = ~F.col("_deleted") & _is_unavailable(column)
    return F.coalesce(reason, F.when(is_refused, F.lit(f"required: {column.name} {UNAVAILABLE}")))


def _time(text: Column) -> Column:
    """The instant of a number of milliseconds since the epoch, as text; null where it is none that Python knows."""
    millis = text.try_cast("bigint")
    return F.when(millis.between(FIRST_MILLI, LAST_MILLI), F.timestamp_millis(millis))


class _OfAvro(Envelope):
    """Envelopes in Avro; `form` has their schema."""

    def __init__(self, form: Avro) -> None:
        self._form = form

    @cached_property
    def row(self) -> tuple[sql.Column, ...]:
        """The fields of the record in `after`, or where that is named only, in `before`.

        Raises:
            DeclarationError: the schema is not that of an envelope.
        """
        schema = parsed(self._form.schema)
        missing = {"op", "before", "after"} - {field["name"] for field in schema["fields"]}
        if missing:
            raise DeclarationError(
                f"the Avro schema of Debezium has no field {', '.join(sorted(missing))}",
                "give the schema of the whole envelope, as the registry has it for the topic.",
            )
        columns = columns_of(_record(schema, "after"))
        _record(schema, "before")
        for column in columns:
            check_column_name(column.name)
        return columns

    @cached_property
    def _change(self) -> Schema:
        """The envelope without its rows: what is told of a change."""
        schema = parsed(self._form.schema)
        return {**schema, "fields": [each for each in schema["fields"] if each["name"] not in ("before", "after")]}

    def opened(self, raw: DataFrame) -> DataFrame:
        """The row of the change is decoded to columns of its own, with a reason against each that is wrong."""
        from streaming.formats.debezium_avro_decoder import AvroEnvelopeDecoder

        schema, names = parsed(self._form.schema), tuple(column.name for column in self.row)
        registry, change, of = self._form.registry, self._change, _record(schema, "after")
        fields = ",".join(f"`{column.name}`:{column.type}" for column in columns_of(change))
        added = (
            sql.Column(_CHANGE, f"struct<{fields}>", required=False),
            sql.Column(_HAS_ROW, "boolean", required=False),
        )
        columns = (*added, *self.row)
        decoder = AvroEnvelopeDecoder((_CHANGE, _HAS_ROW, *names), arrow_types(columns), registry, schema, change, of)
        read = decoded(raw, columns, decoder)
        row = F.struct(*(F.col(f"`{name}`") for name in names))
        deleted = F.coalesce(F.col(f"{_CHANGE}.op") == "d", F.lit(False))
        nothing, told = F.lit(None), {column.name: column.type for column in columns_of(change)}
        # A snapshot of some connectors has no time of its own, and says 0.
        at = [F.nullif(F.col(f"{_CHANGE}.source.ts_ms"), F.lit(0))] if self._has_time("source") else []
        at += [F.nullif(F.col(f"{_CHANGE}.ts_ms"), F.lit(0))] if told.get("ts_ms") == "bigint" else []
        return read.select(
            *raw.columns,
            F.col(f"{_CHANGE}.op").alias(OP),
            F.coalesce(*at, nothing).cast("string").alias(AT),
            (F.to_json(f"{_CHANGE}.source") if "source" in told else nothing).cast("string").alias(SOURCE),
            F.when(F.col(_HAS_ROW) & deleted, row).alias(BEFORE),
            F.when(F.col(_HAS_ROW) & ~deleted, row).alias(AFTER),
            F.col(WRONG).alias("_row_wrong"),
            UNREADABLE,
            UNKNOWN,
        )

    def parsed(self, judged: DataFrame) -> DataFrame:
        """Values and reasons are those of the row that the operation is about."""
        return judged.withColumn("_row", F.when(F.col("_deleted"), F.col(BEFORE)).otherwise(F.col(AFTER)))

    def _has_time(self, name: str) -> bool:
        """True for a field that is a record with the time of the change, a number."""
        named = named_in(self._change)
        for field in self._change["fields"]:
            if field["name"] == name:
                (kind,) = members_of(field["type"], named)[1]
                types = {each.name: each.type for each in columns_of({**kind, "__named_schemas": named})}
                return types.get("ts_ms") == "bigint"
        return False


def _record(schema: Schema, name: str) -> Schema:
    """The record in a field of the envelope, which is null or that record."""
    (field,) = (field for field in schema["fields"] if field["name"] == name)
    named = named_in(schema)
    for kind in members_of(field["type"], named)[1]:
        if kind["type"] == "record":
            return {**kind, "__named_schemas": named}
    raise DeclarationError(
        f"the field {name!r} of the Avro schema of Debezium is no record", "give that of an envelope."
    )
