"""The declaration of an operator, what a pipeline has beside its streams, and of a table that it may read besides."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Literal, Self

from streaming.base import (
    ADDED,
    AT,
    CLOCK,
    COPY,
    DAY,
    REASON,
    REVISION,
    SIGN,
    DeclarationError,
    check_column_name,
    check_name,
    check_type,
    columns_of,
    is_only_place,
    place_in,
)
from streaming.declare.columns import ColumnSpec
from streaming.declare.delivered import CHANGES
from streaming.declare.stream import Stream

CORRECTIONS, UPDATES, OPEN, LATE, STATE = "corrections", "updates", "open", "late", "state"
"""Corrections, updates and open windows of a view, late rows (a read), and what an operator keeps between two steps."""

CURRENT = "current"
"""Current results, which follow from those tables that hold results, and are published as one."""

FIRST = "first"
"""First results, which are the operator's own table."""

PENDING = "pending"
"""Rows of an enrichment that wait for an answer."""

FAILED = "failed"
"""Rows, pairs and windows that an operator cannot be computed for, or rows that a lookup did not answer."""

UNMATCHED = "unmatched"
"""Rows of a join that had no partner in time."""
OnError = Literal["pause", "side"]
"""`pause`: the operator pauses, alone, until its declaration is corrected. `side`: the row goes to the side output
`failed` with the error, and everything else is as if it had never come."""


@dataclass(frozen=True)
class RowLaw:
    """A law of every row of a table, by the declaration alone, so that the gate can ask for it.

    Either no two rows have the same values in the columns `unique`, or the SQL `condition` is true, whose `meaning`
    is for people.
    """

    name: str
    unique: tuple[str, ...] = ()
    condition: str = ""
    meaning: str = ""


STATE_BOUNDED = ("_hash", "_due", "_pane")
"""The columns of tables of state whose bounds steps choose files by; a table has some of them, or none."""


@dataclass(frozen=True)
class TableSpec:
    """A table that an operator writes.

    `suffix`: what its name adds to the operator's, "" for its own table. `written_by`: the stream process, or a
    backfill. `is_result`: what is current is made of it, so that the gate judges it. `is_replaced`: it is written whole
    each time. `keeps_history`: its commits say how far it is, so that none may be cleaned away. `is_state`: it holds
    what the operator must remember between two steps, is written whole in each, and the operator itself cleans it.
    `bounded`: the columns whose bounds all of its files keep, so that files are left out where they are read.
    """

    suffix: str
    description: str
    written_by: Literal["stream", "backfill"] = "stream"
    is_result: bool = True
    is_replaced: bool = False
    keeps_history: bool = False
    is_state: bool = False
    bounded: tuple[str, ...] = ()


class Operator(ABC):
    """A frozen value that says what is computed from one or more streams, and under which name.

    What runs it is found by its type: `streaming.operators.runtime_of`. To add a kind of operator, declare a frozen
    dataclass that is an `Operator`, and register an `OperatorRuntime` for it.
    """

    name: str
    description: str
    kind_name: str = "operator"
    """The name that people use for an operator of this kind."""
    every: str | None = None
    """The shortest interval between its steps in a running pipeline; None: one after each commit of what it reads."""
    on_error: OnError = "pause"
    """The handling of a row for which it cannot be computed."""
    allowed_lateness: str | None = None
    """The time within which the stream process itself corrects by a late row; None where it corrects nothing."""
    is_timed: bool = False
    """True if the clock of its streams decides when results come: those of days that it has passed are whole."""
    begins_at_once: bool = False
    """True if its own table is there as soon as its log has a row."""
    result_name: str = "row"
    """The name that people use for one of its results."""
    corrected_name: str = "rows"
    """The name that people use for those things of which a correction computes all results anew."""
    late_name: str = "late rows"
    """The name that people use for what came late for it."""
    late_meaning: str = "Rows that came when the clock of their stream had passed them."
    """A sentence that says which rows come late for it."""
    current_meaning: str = "first results, updates and corrections put together"
    """Words for what its current results are made of, where these are put together from several tables."""

    @property
    @abstractmethod
    def reads(self) -> tuple[Stream, ...]:
        """The streams whose logs it reads."""

    @property
    def pins(self) -> tuple[Stream, ...]:
        """Those of them that are control streams: each batch of the others records how far their logs are."""
        return ()

    @property
    def follows(self) -> tuple[Stream, ...]:
        """The others, whose logs it follows batch by batch: its tables say how far they are in these."""
        return tuple(stream for stream in self.reads if stream not in self.pins)

    @property
    def reads_current(self) -> tuple[Operator, ...]:
        """The operators of which it reads what is current, besides its logs."""
        return ()

    @property
    def follows_current(self) -> bool:
        """True if it, or a stream that it reads, follows what is current of others, whose corrections it waits for."""
        return bool(self.reads_current) or any(stream.source.takes_back for stream in self.reads)

    @property
    def current_with(self) -> tuple[Stream, ...]:
        """The streams with which what is current of it keeps up batch by batch; none where results wait for a clock."""
        return ()

    @property
    def dimensions(self) -> tuple[Operator, ...]:
        """The operators of its pipeline whose rows it looks up as they were known with each batch; they step first."""
        return ()

    @property
    def looks_up(self) -> tuple[str | Operator, ...]:
        """The Delta tables in which it finds answers, by address or operator, as far as that is declared."""
        return ()

    @property
    def external(self) -> tuple[ExternalTable, ...]:
        """The tables that it reads and that nobody in its pipeline writes."""
        return ()

    @property
    @abstractmethod
    def tables(self) -> tuple[TableSpec, ...]:
        """The tables that it writes as it is declared, its own first."""

    @property
    @abstractmethod
    def fingerprint(self) -> Mapping[str, Any]:
        """The facts its results follow from, as JSON values with names for people: what changes nothing is left out."""

    @property
    def never_rebuilt(self) -> str:
        """Why its tables cannot be built anew from the logs, and what to do instead; empty where they can."""
        return ""

    @property
    def reserved_suffixes(self) -> tuple[str, ...]:
        """The suffixes this kind of declaration may ever append to its name; no other operator may be called so."""
        return tuple(table.suffix for table in self.tables if table.suffix)

    @property
    def published(self) -> tuple[TableSpec, ...]:
        """The tables that follow what is current of it, none where nothing corrects its results.

        They are no tables of its own: what is built anew goes on with their revisions.
        """
        return ()

    @property
    def own_suffixes(self) -> tuple[str, ...]:
        """Those of `reserved_suffixes` that tables of its own have, which are built from the logs."""
        return tuple(suffix for suffix in self.reserved_suffixes if suffix not in (CHANGES, CURRENT))

    @property
    def filters(self) -> tuple[str, ...]:
        """The suffixes of those of its tables that it fills through a filter, and that count what came to it."""
        return ()

    @property
    def delivers(self) -> tuple[str, ...]:
        """The rows of it that a delivery can carry; the first of them where nothing else is said."""
        return ("first", "current", "late")

    def columns_of(self, suffix: str = "") -> tuple[ColumnSpec, ...]:
        """The columns of its table with this suffix, with what they mean, as far as the declaration tells.

        With CURRENT those of its current results, where these are put together from several tables.
        """
        return ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a result that are a function of the rows that it is made of."""
        return tuple(column.name for column in self.columns_of() if not column.name.startswith("_"))

    @property
    def times(self) -> tuple[str, ...]:
        """The columns with the time of a result, by which those that somebody takes for one follow each other."""
        return (AT,)

    def first_begin(self, watermark: datetime | None) -> datetime | None:
        """The earliest time of a result that is published for the first time after a watermark of its clock.

        None where nobody knows, such as of sessions, which may have begun at any time before.
        """
        return watermark

    def first_open(self, watermark: datetime) -> datetime | None:
        """An instant from `first_begin` on, before which no result begins that is not there yet; None for none known.

        It may be told more closely than the watermarks of followers, which must not change between two versions.
        """
        return self.first_begin(watermark)

    @property
    def whole_fingerprint(self) -> Mapping[str, Any]:
        """Its fingerprint, and what says which rows of its streams stand, where these have keys."""
        revised = {stream.name: stream.revised_by for stream in self.reads if stream.revised}
        return {**self.fingerprint, "revisions": revised} if revised else self.fingerprint

    @property
    def reach(self) -> timedelta | None:
        """The furthest that the time of a result may lie from a row that it is made of; None where nobody knows."""
        return timedelta()

    @property
    def refuses_changes(self) -> str:
        """Why it cannot follow a stream of which rows are taken back, and what to do; empty where it can."""
        return f"a {self.kind_name} takes each row for one that stands"

    @property
    def refuses_retractions(self) -> str:
        """Why it cannot follow a stream without a key of which somebody takes rows back; empty where it can."""
        return self.refuses_changes

    def refuses(self, stream: Stream) -> str:
        """Why it cannot follow a stream of which rows are taken back, by revisions or by hand; empty where it can."""
        return self.refuses_changes if stream.takes_back else self.refuses_retractions

    @property
    def signed(self) -> bool:
        """True if a row of its own table may take back another one, which its columns SIGN and ADDED tell."""
        return False

    @property
    def result_key(self) -> tuple[str, ...]:
        """The columns of which no two current results have the same values; none where there are no such columns."""
        return ()

    @property
    def paired_by(self) -> tuple[str, ...]:
        """The columns by which its results are held against those of another declaration of it; none where by all.

        Several results may have the same values in them.
        """
        return self.result_key

    @property
    def explained_by(self) -> tuple[str, ...]:
        """The columns that tell which result is meant when one is to be explained: its key, or all where it has none.

        Rows with the same values in them are explained together.
        """
        return self.result_key or self.columns

    @property
    def corrected(self) -> bool:
        """True if late rows wait for a scheduled correction, which a backfill writes."""
        return any(table.written_by == "backfill" for table in self.tables)

    @property
    def late_policy(self) -> str:
        """The word that says what becomes of late rows; empty where none is late."""
        return ""

    def laws_of(self, suffix: str = "") -> tuple[RowLaw, ...]:
        """The laws of every row of its table with this suffix; none where the declaration says nothing."""
        return ()

    @property
    def tells_late(self) -> bool:
        """True if its late rows can be read, which is what the name with the suffix LATE stands for."""
        return False

    @property
    def diverts(self) -> bool:
        """True where what it cannot be computed for goes to the side output FAILED, and it does not pause."""
        return self.on_error == "side"

    @property
    def tells_failed(self) -> bool:
        """True if the side output FAILED is a read of its logs, and no table."""
        return self.diverts and all(table.suffix != FAILED for table in self.tables)

    @property
    def _diverted(self) -> dict[str, str]:
        """The choice as part of a fingerprint; tables from before there was one are of the other."""
        return {"on error": self.on_error} if self.diverts else {}

    @property
    def joins_clocks(self) -> bool:
        """True if results depend on the clocks of all its streams together, so that one far behind holds them up."""
        return False

    @property
    def overlaid(self) -> bool:
        """True if current results are put together from several tables, or from what is added and taken back."""
        return self.has_first_results

    @property
    def has_first_results(self) -> bool:
        """True if its own table has first results, which another of its tables corrects."""
        return sum(table.is_result for table in self.tables) > 1

    @property
    def streamed(self) -> tuple[TableSpec, ...]:
        """The tables for people that the stream process writes: all but its state."""
        return tuple(table for table in self.tables if table.written_by == "stream" and not table.is_state)

    def renamed(self, name: str) -> Self:
        """The operator under another name."""
        return replace(self, name=name)  # type: ignore[type-var]

    @property
    def folder(self) -> str:
        """Where its tables lie: beside the log of the first stream that it reads."""
        return self.reads[0].name

    def table_name(self, suffix: str = "") -> str:
        """The name of the table with this suffix."""
        return f"{self.name}_{suffix}" if suffix else self.name


@dataclass(frozen=True)
class ExternalTable:
    """A table that nobody in the pipeline writes, under the `name` by which an SQL view reads it in `from`.

    `uri` is the place of a Delta table, relative to the lake's root unless it is absolute or a URI. `schema` are the
    columns that queries may name, in Spark DDL: the table may have more, and these must have the declared types. In the
    place of an address stands an operator of another pipeline of the lake: the rows are what is current of it, and it
    knows its columns.

    Each step of a view reads one version of the table. Rows that differ between that and the version of the step before
    are found by the files that differ, so that a row that was changed touches its keys alone. Where the version before
    cannot be read any more, as after `VACUUM`, or another table is there, the whole view is computed anew.

    Raises:
        DeclarationError: the name is not allowed, `uri` is no place or has a credential in it, there is no column, or
            nothing is published as current of the operator.
        BadExpression: `schema` is no list of names and types.
    """

    name: str
    uri: str | Operator
    schema: str = ""

    def __post_init__(self) -> None:
        what = f"external table {self.name!r}"
        check_name("external table", self.name)
        if isinstance(self.uri, Operator):
            self._check_operator(what, self.uri)
            return
        check_type(f"uri of {what}", self.uri, str, "a folder or URI, such as 's3://bucket/regions', or an operator")
        if not self.uri.strip("/"):
            raise DeclarationError(
                f"uri={self.uri!r} of {what} names no place", "write 'dimensions/regions' or 's3://bucket/regions'."
            )
        if not is_only_place(self.uri):
            raise DeclarationError(
                f"the uri {place_in(self.uri)} of {what} has more in it than a place",
                "leave user, password and query out; credentials are in the environment, such as AWS_ACCESS_KEY_ID.",
            )
        if not self.schema.strip():
            raise DeclarationError(
                f"{what} has no columns", "name those that the query reads: schema='id bigint, name string'."
            )
        for name in self.types:
            check_column_name(name)

    def _check_operator(self, what: str, operator: Operator) -> None:
        if not operator.published:
            raise DeclarationError(
                f"{what} is {operator.kind_name} {operator.name!r}, of which nothing is published as current",
                f"declare Stream(..., source=Table({operator.name})), and let the view read that.",
                operator=operator.name,
            )
        if self.schema:
            raise DeclarationError(
                f"{what} is {operator.kind_name} {operator.name!r}, which knows its columns",
                "leave schema out.",
                operator=operator.name,
            )

    @property
    def operator(self) -> Operator | None:
        """The operator of another pipeline of which it is what is current; None for a table of files."""
        return self.uri if isinstance(self.uri, Operator) else None

    @property
    def place(self) -> str:
        """The place of the table, as a part of the lake's root, absolute or a URI."""
        uri = self.uri
        return f"{uri.folder}/{uri.table_name(CURRENT)}" if isinstance(uri, Operator) else uri

    @cached_property
    def types(self) -> Mapping[str, str]:
        """The Spark types of its columns, by name, where they are declared."""
        return {column.name: column.type for column in columns_of(self.schema)} if self.schema else {}

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of its columns."""
        return self.uri.columns if isinstance(self.uri, Operator) else tuple(self.types)


class AlwaysCurrent(Operator):
    """An operator for which nothing is late: a step adds rows to its own table and takes rows back.

    Rows as they are now follow from that table alone, and are published with each change of them.
    """

    @property
    def current_with(self) -> tuple[Stream, ...]:
        """The streams that it follows."""
        return self.follows

    @property
    def published(self) -> tuple[TableSpec, ...]:
        """The rows as they are now, and each change of them."""
        return published_of(self)

    @property
    def overlaid(self) -> bool:
        """True, since the rows as they are now are what is added and not taken back."""
        return True

    @property
    def reserved_suffixes(self) -> tuple[str, ...]:
        """Those of its own tables, and of what is published."""
        return (*super().reserved_suffixes, CURRENT, CHANGES)

    @property
    def refuses_changes(self) -> str:
        """Nothing: a row that is taken back is no other case than one that is added."""
        return ""

    @property
    def delivers(self) -> tuple[str, ...]:
        """The rows as they are now."""
        return ("current",)

    def first_begin(self, watermark: datetime | None) -> datetime | None:
        """None: whatever its clock says, a row of any time may be added."""
        return None


def check_dimension(operator: Operator, dimension: Operator | None) -> None:
    """Refuse an operator that looks up rows which are made of its own.

    Raises:
        DeclarationError: with the way that its rows take.
    """
    upstream = [] if dimension is None else _upstream(dimension)
    if (operator.folder, operator.name) in [(each.folder, each.name) for each in upstream]:
        assert dimension is not None
        way = " and ".join(repr(each.name) for each in upstream)
        raise DeclarationError(
            f"{operator.kind_name} {operator.name!r} looks up rows of {dimension.name!r}, which follow from its own by "
            f"way of {way}",
            "look up a table that does not follow from what is looked up in it.",
            operator=operator.name,
            value=dimension.name,
        )


def _upstream(of: Operator | Stream) -> list[Operator]:
    """The operators that an operator or a stream follows, however far away."""
    beside = of.dimensions if isinstance(of, Operator) else ()
    followed = [*beside, *(each for stream in of.reads for each, _ in stream.source.follows)]
    return list(dict.fromkeys(one for each in followed for one in (*_itself(each), *_upstream(each))))


def _itself(of: Operator | Stream) -> tuple[Operator, ...]:
    return (of,) if isinstance(of, Operator) else ()


def published_columns(operator: Operator, suffix: str) -> tuple[ColumnSpec, ...]:
    """The columns of the table CURRENT or CHANGES: those of a result, and what a look adds."""
    of_result = (column for column in operator.columns_of() if column.name in (*operator.columns, DAY))
    copy = ColumnSpec(COPY, "Which of several equal results it is, from 1 on.", "int")
    reason = "What stands here: the first result, or what an update or a correction has made of it."
    sign = ColumnSpec(SIGN, "1 for a result that is there from now on, -1 for one that is not any more.", "int")
    is_changes = suffix == CHANGES
    return (
        *of_result,
        *(() if operator.result_key else (copy,)),
        *((sign,) if is_changes else ()),
        ColumnSpec(REASON, reason, "string"),
        ColumnSpec(REVISION, "The number of the look that has brought it.", "bigint"),
        *((ColumnSpec(CLOCK, "The watermark of the operator at that look.", "timestamp"),) if is_changes else ()),
    )


def published_of(operator: Operator) -> tuple[TableSpec, ...]:
    """The tables that are published of an operator that corrects its results."""
    of = f"what is current of {operator.kind_name} {operator.name}"
    return (
        TableSpec(CHANGES, f"Every change of {of}", bounded=(REVISION, SIGN)),
        TableSpec(CURRENT, of[0].upper() + of[1:], is_result=False, bounded=(REVISION,)),
    )


def signed_columns() -> Iterator[ColumnSpec]:
    """The columns that tell whether a row takes back another one, and which."""
    yield ColumnSpec(ADDED, "The row of the stream that it is made of; the same in one that takes it back.", "string")
    yield ColumnSpec(SIGN, "1 for a row that is added, -1 for one that takes it back.", "int")


def corrections_of(output: str) -> str:
    """The suffix of the corrections of an output: of the results ("") CORRECTIONS."""
    return f"{output}_{CORRECTIONS}" if output else CORRECTIONS
