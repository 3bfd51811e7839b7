"""The tables of an enrichment: their columns in Arrow's types, and how far each is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import DateType, StructField, StructType

from streaming.base import AT, BATCH, DAY, ORIGIN, STEP_COLUMN, WRITTEN_AT, FencedError
from streaming.declare import FAILED, PENDING, Enriched
from streaming.log import Batch
from streaming.spark import failure_of, guarded

ASKED_AT, ANSWERED_AT, ATTEMPT, ATTEMPTS = "_asked_at", "_answered_at", "_attempt", "_attempts"
CACHED, ERROR, VERSION, REQUEST = "_cached", "_error", "_version", "_request"

_TIME = pa.timestamp("us", "UTC")
_WRITTEN = [(VERSION, pa.int32()), (STEP_COLUMN, pa.int64()), (WRITTEN_AT, _TIME)]
_ADDED = {
    "": [(ASKED_AT, _TIME), (ANSWERED_AT, _TIME), (ATTEMPT, pa.int32()), (CACHED, pa.bool_()), (ERROR, pa.string())],
    FAILED: [(ASKED_AT, _TIME), (ANSWERED_AT, _TIME)],
    PENDING: [(ASKED_AT, _TIME), (ATTEMPTS, pa.int32()), (ERROR, pa.string()), (REQUEST, pa.string())],
}
_FAILURE = [pa.field("kind", pa.string()), pa.field("error", pa.string()), pa.field("attempts", pa.int32())]
STEP = "step"
_THROUGH, _ROW = "through", "row"


def select_rows(enriched: Enriched, rows: DataFrame) -> DataFrame:
    """The selected columns of rows of the log, null where one cannot be computed, and where each row is from."""
    return rows.select(*_selected(enriched, rows))


def rows_to_ask_for(enriched: Enriched, rows: DataFrame) -> DataFrame:
    """The columns of `select_rows`, and `_error`: which column of a row cannot be computed, null where all can."""
    failures = [
        failure_of(rows, f"column {name!r}", sql, _value(sql), BATCH)
        for name, sql in enriched.selected.selected(enriched.of.columns).items()
        if _may_fail(sql, rows)
    ]
    return rows.select(*_selected(enriched, rows), F.coalesce(*failures, F.lit(None).cast("string")).alias(ERROR))


def _selected(enriched: Enriched, rows: DataFrame) -> Iterator[Column]:
    for name, sql in enriched.selected.selected(enriched.of.columns).items():
        value = guarded(_value(sql), BATCH)["value"] if _may_fail(sql, rows) else _value(sql)
        yield value.alias(name)
    yield from (F.col(f"`{enriched.of.event_time}`").alias(AT), F.col(BATCH), F.col(ORIGIN))


def _value(sql: str) -> Column:
    return F.expr(f"({sql}\n)")


def _may_fail(sql: str, rows: DataFrame) -> bool:
    """True if the SQL is more than a column, which costs nothing."""
    return sql.strip("`") not in rows.columns


def selected_schema(selected: DataFrame) -> pa.Schema:
    """The columns that `select_rows` has `selected`, as Arrow has them."""
    schema = to_arrow_schema(selected.schema, timezone="UTC")
    # A column may be without a null in one step and have some in another.
    return pa.schema([pa.field(field.name, field.type) for field in schema])


def table_schemas(enriched: Enriched, selected: pa.Schema) -> dict[str, pa.Schema]:
    """The columns of each table without the day, by its suffix; `selected` are those of `selected_schema`."""
    values, places = list(selected)[:-3], list(selected)[-3:]
    own = {"": list(enriched.answer_schema), FAILED: _FAILURE, PENDING: []}
    return {
        suffix: pa.schema(
            [
                *values,
                *own[suffix],
                *places,
                *(pa.field(name, type_) for name, type_ in _ADDED[suffix]),
                *([] if suffix == PENDING else (pa.field(name, type_) for name, type_ in _WRITTEN)),
            ]
        )
        for suffix in own
    }


def spark_schema(schema: pa.Schema, *, partitioned: bool) -> StructType:
    """The columns of a table as Spark knows them, with the day where it partitions the table."""
    fields = from_arrow_schema(schema, prefer_timestamp_ntz=True).fields
    return StructType([*fields, *([StructField(DAY, DateType())] if partitioned else [])])


@dataclass(frozen=True, order=True)
class Place:
    """The rows of the log's batches up to `through` are taken, and the first `row` valid ones of the batch after it."""

    through: int = -1
    row: int = 0

    @property
    def last(self) -> int:
        """The newest batch of which rows are taken."""
        return self.through + (1 if self.row else 0)


@dataclass(frozen=True)
class Reached:
    """The number of the step that wrote the table last, -1 where none did, and how far the log was taken by then."""

    step: int = -1
    place: Place = Place()

    @classmethod
    def of(cls, table: DeltaTable | None) -> Reached:
        """The progress that an open table records."""
        numbers = [None if table is None else table.transaction_version(name) for name in (STEP, _THROUGH, _ROW)]
        step, through, row = (-1 if number is None else number for number in numbers)
        return cls(step, Place(through, max(row, 0)))

    def numbers(self) -> dict[str, int]:
        """All of it, as a table keeps it."""
        return {STEP: self.step, _THROUGH: self.place.through, _ROW: self.place.row}

    def fence(self, enriched: Enriched, table: DeltaTable) -> None:
        """Refuse to write what follows from here where the table is elsewhere by now.

        Raises:
            FencedError: another process has taken over.
        """
        there = Reached.of(table)
        if there != self:
            raise FencedError(
                f"enrichment {enriched.name!r} was at step {self.step} and is at step {there.step} now, so another "
                "process has taken over while this one was away. Nothing is lost; let the other one run, or stop it "
                f"and start again (`tidemark status {enriched.folder}` names it)."
            )


def valid_rows(batch: Batch) -> int:
    """The number of valid rows in a batch."""
    return batch.summary.rows - batch.rejected


def taken(at: Place, behind: Sequence[Batch], most: int) -> Place:
    """The place the log is taken to after `at` with at most `most` further rows; `behind` are the batches after it."""
    for batch in behind:
        left = valid_rows(batch) - at.row
        if left > most:
            return Place(at.through, at.row + most)
        at, most = Place(batch.number), most - left
    return at


def rows_between(at: Place, to: Place, batches: Sequence[Batch]) -> int:
    """The number of valid rows between two places; `batches` are those in between, of which the last may be cut."""
    whole = sum(valid_rows(batch) for batch in batches if at.through < batch.number <= to.through)
    return whole - at.row + to.row
