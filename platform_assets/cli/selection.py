"""Which rows and columns of a frame `tidemark show` prints, as they are asked for on the command line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from platform_assets.errors import BadSelection
from streaming.base import F, ReadError
from streaming.reading import Choice, StoredRows
from streaming.spark import cause_in_words, failed_expression

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@dataclass(frozen=True)
class Selection:
    """`columns` and `sort` are names separated by commas, those of `sort` with `desc` or not; `where` is SQL.

    `key` is `name=value` for each of its columns, separated by commas, or the value of the first column alone.
    """

    columns: str | None = None
    where: str | None = None
    sort: str | None = None
    key: str | None = None

    def of_stored(self, rows: StoredRows) -> Choice:
        """The rows and columns that are asked for of rows that lie in the lake.

        Raises:
            BadSelection: there is no such column, or the condition is none; the text names the columns there are.
            Untranslatable: only Spark can tell which rows these are.
        """
        names, chosen = rows.columns, Choice(rows)
        if self.key is not None:
            with _refused(f"--key {self.key!r}", names):
                for name, value in _key(names, self.key).items():
                    chosen = chosen.equal(name, value)
        if self.where is not None:
            with _refused(f"--where {self.where!r}", names):
                chosen = chosen.where(self.where)
        if self.sort is not None:
            with _refused(f"--sort {self.sort!r}", names):
                for entry in _entries(self.sort):
                    name, descending = _direction(names, entry)
                    chosen = chosen.sorted_by(name, descending=descending)
        if self.columns is not None:
            with _refused(f"--columns {self.columns!r}", names):
                for name in _entries(self.columns):
                    chosen = chosen.select(name)
        return chosen

    def of(self, frame: DataFrame) -> DataFrame:
        """The rows and columns of `frame` that are asked for.

        Raises:
            BadSelection: there is no such column, or the condition is none; the text names the columns there are.
        """
        chosen = frame
        if self.key is not None:
            with _explained(f"--key {self.key!r}", frame):
                for name, value in _key(frame.columns, self.key).items():
                    chosen = chosen.where(_column(frame, name).cast("string") == value)
        if self.where is not None:
            with _explained(f"--where {self.where!r}", frame):
                chosen = chosen.where(self.where)
        if self.sort is not None:
            with _explained(f"--sort {self.sort!r}", frame):
                chosen = chosen.orderBy(*(_order(frame, entry) for entry in _entries(self.sort)))
        if self.columns is not None:
            with _explained(f"--columns {self.columns!r}", frame):
                chosen = chosen.select(*(_column(frame, name).alias(name) for name in _entries(self.columns)))
        return chosen

    @contextmanager
    def computing(self, frame: DataFrame) -> Iterator[None]:
        """For the time in which the rows of `frame` are computed: only then some conditions turn out to be none.

        Raises:
            BadSelection: the condition cannot be computed for some row.
        """
        if self.where is None:
            yield
        else:
            with _explained(f"--where {self.where!r}", frame):
                yield


@contextmanager
def _refused(option: str, names: Sequence[str]) -> Iterator[None]:
    try:
        yield
    except ReadError as error:
        raise BadSelection(f"{option} cannot be used: {error} Columns are: {', '.join(names)}.") from None


@contextmanager
def _explained(option: str, frame: DataFrame) -> Iterator[None]:
    from py4j.protocol import Py4JJavaError
    from pyspark import errors

    try:
        yield
    # Spark's errors for SQL that it cannot read, that names nothing, or that cannot be computed for some row.
    except (
        errors.AnalysisException,
        errors.ArithmeticException,
        errors.DateTimeException,
        errors.NumberFormatException,
        errors.ParseException,
        errors.SparkRuntimeException,
    ) as error:
        raise BadSelection(f"{option} cannot be used: {_reason(error)} Columns are: {_names(frame)}.") from None
    # Where rows are fetched in a thread of the JVM, PySpark may hand on the error as it was there.
    except Py4JJavaError as error:
        if failed_expression(str(error)) is None:
            raise
        raise BadSelection(f"{option} cannot be used: {cause_in_words(error)}. Columns are: {_names(frame)}.") from None


def _entries(text: str) -> list[str]:
    return list(dict.fromkeys(entry.strip() for entry in text.split(",") if entry.strip()))


def _key(columns: Sequence[str], text: str) -> dict[str, str]:
    """The value that is asked of each column of a key; a value alone may hold any character."""
    parts = [entry.partition("=") for entry in text.split(",")]
    if all(equals for _, equals, _ in parts):
        return {name.strip(): value for name, _, value in parts}
    return {columns[0]: text}


def _order(frame: DataFrame, entry: str) -> Column:
    name, descending = _direction(frame.columns, entry)
    return _column(frame, name).desc() if descending else _column(frame, name).asc()


def _direction(columns: Sequence[str], entry: str) -> tuple[str, bool]:
    """The column by which an entry sorts, and whether it descends."""
    name, _, direction = entry.partition(" ")
    if direction.strip().lower() not in ("", "asc", "desc"):
        raise BadSelection(
            f"--sort {entry!r} cannot be used: after a column comes nothing, asc or desc, such as "
            f"--sort '{name} desc'. Columns are: {', '.join(columns)}."
        )
    return name, direction.strip().lower() == "desc"


def _column(frame: DataFrame, name: str) -> Column:
    """A column, or a field of one such as `_origin.file`."""
    return F.col(f"`{name}`" if name in frame.columns else name)


def _names(frame: DataFrame) -> str:
    return ", ".join(frame.columns)


def _reason(error: Exception) -> str:
    """The message of Spark's error, without its names of errors, the plan and the trace."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return re.sub(r"^\[[A-Z_.]+\] ", "", lines[0].partition(" SQLSTATE")[0]).rstrip()
