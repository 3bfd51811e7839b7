"""SQL over all tables of the lake, by DuckDB: a pipeline is a database, an operator a table and a schema in it.

`flights.departures_by_origin` is what is current of an operator, `flights.departures_by_origin.first` another of its
tables, `flights.log` that of the pipeline's stream, `reports.on_time_performance` what was published of a report.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from streaming.base import ReadError
from streaming.declare import CURRENT, Operator, Pipeline
from streaming.lake import Lake
from streaming.reading.conditions import quoted
from streaming.reading.selection import Choice, new_database
from streaming.reading.stored import StoredRows, names_of_operator, names_of_pipeline, stored_rows
from streaming.tables import delta, storage

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, DuckDBPyRelation

_OF_STREAM = ("log", "changes", "rows", "rejected")
_MAIN, _REPORTS = "main", "reports"
Name = tuple[str, ...]


@dataclass(frozen=True)
class LakeTable(ABC):
    """A table of the lake that SQL may name."""

    name: Name

    def __str__(self) -> str:
        return ".".join(self.name)

    @abstractmethod
    def rows(self, lake: Lake) -> StoredRows | None:
        """The rows; None where no table has them."""

    @property
    @abstractmethod
    def way_out(self) -> str:
        """The way out where no table has them."""


@dataclass(frozen=True)
class OperatorTable(LakeTable):
    """The rows `what` of an operator, or of the stream that it reads first."""

    pipeline: Pipeline
    operator: Operator
    what: str

    def rows(self, lake: Lake) -> StoredRows | None:
        """The rows; None where no table has them."""
        return stored_rows(lake, self.pipeline, self.operator, self.what)

    @property
    def way_out(self) -> str:
        """The commands that fill it, and that compute what is in no table."""
        of = self.pipeline.name
        return (
            f"Run `tidemark run {of}` if nothing is there yet; `tidemark show {of} {self.what} --view "
            f"{self.operator.name}` computes what is in none."
        )


@dataclass(frozen=True)
class ReportTable(LakeTable):
    """The rows of a section of a report at the version that was published last; a later one may not be."""

    version: int

    def rows(self, lake: Lake) -> StoredRows | None:
        """The rows as they were published."""
        table = delta.open_table(lake.report(self.name[-1]), self.version)
        return None if table is None else StoredRows.of(table)

    @property
    def way_out(self) -> str:
        """The command that publishes it."""
        return f"Run `tidemark report {self.name[-1]}`."


def lake_tables(lake: Lake, pipelines: Iterable[Pipeline]) -> dict[Name, LakeTable]:
    """The tables that SQL may name, in lower case, whether or not there is anything in them yet."""
    tables: list[LakeTable] = []
    for pipeline in pipelines:
        for operator in pipeline.operators:
            own, stream = (pipeline.name, operator.name), operator.reads[0]
            tables.append(OperatorTable(own, pipeline, operator, CURRENT))
            stored = names_of_operator(lake, operator)
            tables += (OperatorTable((*own, what), pipeline, operator, what) for what in stored)
            place = (pipeline.name,) if stream == pipeline.stream else (pipeline.name, stream.name)
            for what in names_of_pipeline(lake, pipeline, stream):
                within = place if what in _OF_STREAM else (pipeline.name,)
                tables.append(OperatorTable((*within, what), pipeline, operator, what))
    tables += (ReportTable((_REPORTS, section), version) for section, version in _published(lake).items())
    return {tuple(part.lower() for part in table.name): table for table in tables}


def _published(lake: Lake) -> dict[str, int]:
    """The version of each section that the publications of the reports name."""
    folder = lake.path(_REPORTS)
    files = sorted(name for name in storage.files_in(folder) if name.endswith(".json"))
    documents = [storage.read_json(f"{folder}/{name}") or {} for name in files]
    return {section: version for each in documents for section, version in each.get("versions", {}).items()}


class LakeDatabase:
    """A database in memory that has the tables of the lake which queries name; each query sees them as they are then.

    Raises:
        ReadError: from each query that cannot be computed; the text says why, and which tables there are.
    """

    def __init__(self, lake: Lake, pipelines: Iterable[Pipeline]) -> None:
        self._lake = lake
        self.tables = lake_tables(lake, pipelines)

    def table(self, query: str, limit: int | None = None) -> pa.Table:
        """The rows of a query, at most `limit` of them."""
        with self._computed(query) as relation:
            table: pa.Table = (relation if limit is None else relation.limit(limit)).to_arrow_table()
            return table

    def batches(self, query: str, limit: int | None = None) -> Iterator[pa.Table]:
        """The rows of a query, a part at a time; the first part tells the columns."""
        with self._computed(query) as relation:
            limited = relation if limit is None else relation.limit(limit)
            yield limited.limit(0).to_arrow_table()
            for batch in limited.to_arrow_reader(10_000):
                yield pa.Table.from_batches([batch])

    def columns_of(self, name: Name) -> tuple[str, ...]:
        """The columns of a table; none where there is nothing in it yet."""
        rows = self.tables[name].rows(self._lake)
        return () if rows is None else rows.columns

    @contextmanager
    def _computed(self, query: str) -> Iterator[DuckDBPyRelation]:
        import duckdb

        named = self._named(query)
        try:
            with new_database() as database:
                _add(database, {table: self._rows(table) for table in named})
                relation = database.sql(query)
                if relation is None:
                    raise ReadError(f"{query!r} gives no rows.", "Write a select.", value=query)
                yield relation
        except duckdb.Error as error:
            reason = str(error).strip().splitlines()[0]
            raise ReadError(f"the query cannot be computed: {reason}.", f"{self._choices()}", value=query) from None

    def _named(self, query: str) -> list[LakeTable]:
        """The tables of the lake that a query names; other names are DuckDB's matter."""
        try:
            statements = [each for each in sqlglot.parse(query, read="duckdb") if each is not None]
        except SqlglotError:
            return []
        found = (table for each in statements for table in each.find_all(exp.Table))
        names = (tuple(part.name.lower() for part in table.parts) for table in found)
        return [self.tables[name] for name in dict.fromkeys(names) if name in self.tables]

    def _rows(self, table: LakeTable) -> StoredRows:
        rows = table.rows(self._lake)
        if rows is None:
            raise ReadError(f"{table} is in no table of the lake {self._lake.root!r}.", table.way_out, value=str(table))
        return rows

    def _choices(self) -> str:
        return f"Tables are: {', '.join(map(str, self.tables.values())) or 'none'}."


def _add(database: DuckDBPyConnection, tables: Mapping[LakeTable, StoredRows]) -> None:
    for number, (table, rows) in enumerate(tables.items()):
        catalog, *schema, name = table.name
        within = ".".join(map(quoted, (catalog, *(schema or [_MAIN]))))
        database.execute(f"attach if not exists ':memory:' as {quoted(catalog)}")
        database.execute(f"create schema if not exists {within}")
        source = f"rows_{number}"
        database.register(source, rows.source)
        shown = Choice(rows).sql(source=source, ordered=False)
        database.execute(f"create view {within}.{quoted(name)} as {shown}")
