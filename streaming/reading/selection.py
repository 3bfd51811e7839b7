"""A choice of stored rows, as DuckDB computes it: a key, a condition in Spark's SQL, an order, columns, a number."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from streaming.reading.conditions import Untranslatable, column, quoted, resolved, text_literal, translated
from streaming.reading.stored import StoredRows

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_ROWS_OF_A_BATCH = 10_000
_COMPARED_AS_TEXT = ("text", "integer", "boolean", "date")
"""The kinds of types whose values have the same text in Spark and in DuckDB."""


def new_database() -> DuckDBPyConnection:
    """A database of DuckDB's in memory, whose instants are of UTC, as everywhere here."""
    import duckdb

    opened = duckdb.connect()
    opened.execute("set timezone = 'UTC'")
    return opened


@dataclass(frozen=True)
class Choice:
    """Some of the `rows` and columns of a table; each method narrows it, and `table` or `batches` computes it."""

    rows: StoredRows
    conditions: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    columns: tuple[tuple[str, str], ...] = ()
    """The columns that were selected, each with its SQL; all where none was."""

    @property
    def schema(self) -> pa.Schema:
        """The columns that may be named."""
        return self.rows.schema

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of what is chosen."""
        return tuple(name for _, name in self.columns) or self.rows.columns

    def where(self, condition: str) -> Self:
        """Those for which a condition in Spark's SQL is true.

        Raises:
            ReadError: it is none, or names a column that is not there.
            Untranslatable: only Spark knows what it means.
        """
        return replace(self, conditions=(*self.conditions, translated(condition, self.schema)))

    def equal(self, name: str, text: str) -> Self:
        """Those in which a column, as text, is `text`.

        Raises:
            ReadError: there is no such column.
            Untranslatable: only Spark knows the text of its values.
        """
        value = column(name, self.schema)
        if value.kind not in _COMPARED_AS_TEXT:
            raise Untranslatable(name)
        return replace(self, conditions=(*self.conditions, f"(cast({value.sql} as varchar) = {text_literal(text)})"))

    def sorted_by(self, name: str, *, descending: bool = False) -> Self:
        """In the order of a column, after those that were named before; as in Spark a null is the least value.

        Raises:
            ReadError: there is no such column.
            Untranslatable: only Spark orders values of its type.
        """
        names, type_ = resolved([name] if name in self.schema.names else name.split("."), self.schema)
        parts = _comparable(".".join(map(quoted, names)), type_)
        if None in parts:
            raise Untranslatable(name)
        direction = "desc nulls last" if descending else "asc nulls first"
        return replace(self, order=(*self.order, *(f"{part} {direction}" for part in parts)))

    def select(self, name: str) -> Self:
        """With a column, after those that were selected before.

        Raises:
            ReadError: there is no such column.
        """
        names, _ = resolved([name] if name in self.schema.names else name.split("."), self.schema)
        return replace(self, columns=(*self.columns, (".".join(map(quoted, names)), name)))

    def table(self, limit: int | None = None) -> pa.Table:
        """The rows chosen, at most `limit` of them."""
        with new_database() as database:
            table: pa.Table = self._computed(database, limit).to_arrow_table()
            return table

    def batches(self, limit: int | None = None) -> Iterator[pa.Table]:
        """The rows chosen, a part at a time, so that their texts need not fit into memory as a whole."""
        with new_database() as database:
            for batch in self._computed(database, limit).to_arrow_reader(_ROWS_OF_A_BATCH):
                yield pa.Table.from_batches([batch])

    def sql(self, limit: int | None = None, *, source: str = "rows", ordered: bool = True) -> str:
        """The query, over what the database has as `source`; in no order where `ordered` is false."""
        computed = self.rows.computed
        shown = ", ".join(
            f"{computed[name][0]} as {quoted(name)}" if name in computed else quoted(name) for name in self.rows.columns
        )
        # What is ordered by is there also where it is not shown.
        chosen = ", ".join(f"{sql} as {quoted(name)}" for sql, name in self.columns) or "*"
        conditions = " and ".join(self.conditions) or "true"
        default = [
            f"{part} asc nulls first"
            for name in self.rows.order
            if name in self.rows.columns
            for part in _comparable(quoted(name), self.schema.field(name).type)
            if part is not None
        ]
        order = ", ".join((*self.order, *default)) if ordered else ""
        named = "" if source == "rows" else f"with rows as (select * from {source}) "
        return (
            f"{named}select {chosen} from (select {shown} from rows where {self.rows.condition}) as shown "
            f"where {conditions}"
            + (f" order by {order}" if order else "")
            + ("" if limit is None else f" limit {limit}")
        )

    def _computed(self, database: DuckDBPyConnection, limit: int | None) -> Any:
        database.register("rows", self.rows.source)
        return database.sql(self.sql(limit))


def _comparable(sql: str, type_: pa.DataType) -> list[str | None]:
    """The values by whose order one after the other Spark orders those of a type; None for what is no such value.

    DuckDB takes a null within a struct for the greatest value, and Spark for the least.
    """
    types = pa.types
    if types.is_struct(type_):
        parts = (part for each in type_ for part in _comparable(f"{sql}.{quoted(each.name)}", each.type))
        return [f"({sql} is not null)", *parts]
    return [None] if types.is_nested(type_) else [sql]
