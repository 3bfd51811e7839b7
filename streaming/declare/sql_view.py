"""The declaration of an SQL view: a query over what stands of streams and operators, kept right key by key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from streaming.base import BATCH, COPY, DAY, REASON, SIGN, DeclarationError, check_name, interval, settle, times_among
from streaming.declare.columns import ColumnSpec
from streaming.declare.delivered import CHANGES
from streaming.declare.history import VALID_FROM, VALID_TO, History
from streaming.declare.operator import CURRENT, AlwaysCurrent, ExternalTable, Operator, TableSpec, published_columns
from streaming.declare.stream import Stream

if TYPE_CHECKING:
    from streaming.sql import Query


@dataclass(frozen=True)
class View(AlwaysCurrent):
    """A query in Spark's SQL over what stands of its sources, always current: nothing is late for it.

    `of` are the sources that the query may name in `from`, each by its name: of a stream the rows that stand, of an
    operator what is current, of an `ExternalTable` the rows of its newest version. `key` are columns of the result, the
    unit in which results are replaced: a step finds the keys that changed rows of the sources may touch, computes the
    query for these alone, and writes what differs. Several rows may have the same key; without columns all rows are one
    key, and each step computes all.

    The query must give the same rows for the same sources. Functions that nobody here knows are refused, but for those
    named in `deterministic`.

    `every` (an interval of processing time): how often a running pipeline steps it at most; left out, after each batch.

    Raises:
        DeclarationError: no source, one that has no current rows, or two of one name.
        BadQuery: the query cannot be kept right key by key, with the reason and what to write instead.
    """

    name: str
    sql: str
    of: tuple[Stream | Operator | ExternalTable, ...]
    key: tuple[str, ...] = ()
    deterministic: tuple[str, ...] = ()
    description: str = ""
    every: str | None = None

    kind_name = "SQL view"
    current_meaning = "rows that were added and not taken back"

    def __post_init__(self) -> None:
        check_name(self.kind_name, self.name)
        object.__setattr__(
            self, "of", (self.of,) if isinstance(self.of, (Stream, Operator, ExternalTable)) else tuple(self.of)
        )
        settle(self, f"SQL view {self.name!r}")
        self._check_sources()
        if self.every is not None:
            interval(self.every)
        taken = [name for name in self.query.columns if name.startswith("_")]
        if taken:
            raise DeclarationError(
                f"column {taken[0]!r} of SQL view {self.name!r} begins with an underscore, as columns of the platform",
                "give it another name with `as`.",
                operator=self.name,
                column=taken[0],
            )

    def _check_sources(self) -> None:
        names = [source.name for source in self.of]
        if not names:
            raise DeclarationError(
                f"SQL view {self.name!r} is of nothing", "name the streams and operators that it reads: of=(orders,)."
            )
        for source in self.of:
            if names.count(source.name) > 1:
                raise DeclarationError(
                    f"SQL view {self.name!r} has {source.name!r} twice in of",
                    "name each once; the query may read it as often as it likes.",
                    operator=self.name,
                    value=source.name,
                )
            if isinstance(source, Operator) and not source.published:
                raise DeclarationError(
                    f"SQL view {self.name!r} cannot read {source.kind_name} {source.name!r}, of which nothing is "
                    "published as current",
                    f"declare Stream(..., source=Table({source.name})), and let the view read that.",
                    operator=self.name,
                    value=source.name,
                )
        if all(isinstance(source, ExternalTable) for source in self.of):
            raise DeclarationError(
                f"SQL view {self.name!r} reads {', '.join(names)}, and no stream: nothing would tell it when to step",
                "let it read a stream or an operator, too, or follow a table as one: Stream(..., source=Table(uri)).",
                operator=self.name,
                value=names[0],
            )

    @cached_property
    def query(self) -> Query:
        """The query, analysed.

        Raises:
            BadQuery: with the reason and what to write instead.
        """
        from streaming.sql import Query

        bounds = {
            source.name: (VALID_FROM, VALID_TO)
            for source in self.of
            if isinstance(source, History) and source.kind == 2
        }
        relations = {source.name: source.columns for source in self.of}
        times = {source.name: _times_of(source) for source in self.of}
        return Query.of(self.sql, relations, self.key, self.deterministic, bounds, times)

    @property
    def reads(self) -> tuple[Stream, ...]:
        """The streams that it names, and those of the operators that it names."""
        named = (source for source in self.of if isinstance(source, Stream))
        below = (stream for operator in self.reads_current for stream in operator.reads)
        return tuple(dict.fromkeys((*named, *below)))

    @property
    def follows(self) -> tuple[Stream, ...]:
        """The streams that it names."""
        return tuple(source for source in self.of if isinstance(source, Stream))

    @property
    def reads_current(self) -> tuple[Operator, ...]:
        """The operators of which it reads what is current."""
        return tuple(source for source in self.of if isinstance(source, Operator))

    @property
    def current_with(self) -> tuple[Stream, ...]:
        """The streams that it names, and those with which operators that it names are current."""
        below = (stream for operator in self.reads_current for stream in operator.current_with)
        return tuple({stream.name: stream for stream in (*below, *self.follows)}.values())

    @property
    def external(self) -> tuple[ExternalTable, ...]:
        """The tables of others that it names."""
        return tuple(source for source in self.of if isinstance(source, ExternalTable))

    @property
    def tables(self) -> tuple[TableSpec, ...]:
        """The rows of the result as steps add them and take them back."""
        about = f": {self.description}" if self.description else ""
        return (
            TableSpec("", f"Rows of SQL view {self.name} as they are added and taken back{about}", bounded=(BATCH,)),
        )

    @property
    def times(self) -> tuple[str, ...]:
        """The day, which is null where no column of the key has a time."""
        return (DAY,)

    @property
    def reach(self) -> None:
        """None: a row may be made of rows of any time."""
        return None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the query."""
        return self.query.columns

    @property
    def paired_by(self) -> tuple[str, ...]:
        """The key, which several rows may share."""
        return self.key

    @property
    def explained_by(self) -> tuple[str, ...]:
        """The key of the query; none where it gives one row in all."""
        return self.query.key

    @property
    def fingerprint(self) -> Mapping[str, Any]:
        """The query, its key and its sources."""
        external = {table.name: f"{table.place} ({table.schema})" for table in self.external}
        return {
            "sql": self.sql.strip(),
            "key": list(self.key),
            "sources": sorted(source.name for source in self.of),
            **({"tables": external} if external else {}),
        }

    def columns_of(self, suffix: str = "") -> tuple[ColumnSpec, ...]:
        """The columns of the query, which only Spark can tell the types of, then what a step adds."""
        if suffix in (CURRENT, CHANGES):
            return published_columns(self, suffix)
        if suffix:
            return ()
        values = (
            ColumnSpec(
                name,
                "Key." if name in self.key else "",
                of=self.query.lineage.get(name, ()),
            )
            for name in self.query.columns
        )
        return (
            *values,
            ColumnSpec(COPY, "Which of several equal rows it is, from 1 on.", "int"),
            ColumnSpec(SIGN, "1 for a row that is added, -1 for one that is taken back.", "int"),
            ColumnSpec(REASON, "Whether its key was there before.", "string"),
            ColumnSpec(BATCH, "Number of the step that has brought it.", "bigint"),
            ColumnSpec(DAY, "Date of the first column of the key with a time, UTC; null where there is none.", "date"),
        )


def _times_of(source: Stream | Operator | ExternalTable) -> frozenset[str]:
    """The columns of a source that are known to be dates or timestamps."""
    if isinstance(source, Stream):
        return source.times
    if isinstance(source, View):
        return source.query.times
    if isinstance(source, ExternalTable):
        return times_among(source.types)
    return times_among({column.name: column.type for column in source.columns_of(CURRENT)})
