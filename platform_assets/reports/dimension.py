"""The declaration of a dimension: a table kept elsewhere, such as names and places, or a history; a report joins it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from quality import Expectation, Suite, always, unique
from streaming.base import Column, DeclarationError, check_connection, check_name, check_tuple, columns_of
from streaming.declare import CURRENT, History

Format = Literal["csv", "parquet", "delta", "postgres"]
_SUFFIXES: dict[str, Format] = {".csv": "csv", ".parquet": "parquet"}
_IN_CSV = ("string", "boolean", "int", "bigint", "float", "double", "date", "timestamp")


@dataclass(frozen=True)
class Dimension:
    """A table that is kept elsewhere, and that a report joins as `sources.dimension(name)`.

    `place` is a file `*.csv` with a header, a file `*.parquet`, or else the folder of a Delta table: a path below the
    lake, an absolute one, or a URI. With a `connection`, a libpq connection string without a password, it is a table
    of Postgres, `name` or `schema.name`. `columns` are those of a CSV file or of Postgres in Spark DDL, as `Json` takes
    them; the others know theirs. No two rows may agree in `key` and none may lack it, or a join would count rows twice
    or lose them; `expectations` come on top of that. The gate asks for all of them before the report is published.

    A report is of one version: that of the Delta table, or that of `dimensions/<name>` in the lake, which holds every
    content of the file, or of the table of Postgres, that a report was made of.

    `place` may be a `History` of another pipeline, too: its rows as they are current, by the key of its stream, for
    `kind=2` and `valid_from`, so that a join is as of a time.

    Raises:
        DeclarationError: a name or type is not allowed, there is no key, or columns are missing or declared in vain.
    """

    name: str
    place: str | History
    key: tuple[str, ...] = ()
    columns: str = ""
    expectations: tuple[Expectation, ...] = ()
    connection: str | None = None

    def __post_init__(self) -> None:
        check_name("dimension", self.name)
        what = f"dimension {self.name!r}"
        if not isinstance(self.place, str):
            self._check_history(what, self.place)
        check_tuple(f"the key of {what}", self.key, str, 'a tuple of columns, such as key=("sensor",)')
        check_tuple(f"the expectations of {what}", self.expectations, Expectation, "a tuple, such as (always(...),)")
        if not self.key:
            raise DeclarationError(f"{what} has no key", 'name the columns that tell its rows apart: key=("id",).')
        if self.connection is not None:
            check_connection(what, self.connection)
            if self.path.count(".") > 1 or not all(self.path.split(".")):
                raise DeclarationError(f"{what}: {self.path!r} names no table", "write 'shops' or 'trade.shops'.")
        needs = self.format in ("csv", "postgres")
        if needs != bool(self.columns):
            raise DeclarationError(
                f"{what} at {self.path!r} {'needs' if needs else 'must not have'} columns: a CSV file does not know "
                "its types, of Postgres those that are named are read, Parquet and Delta know theirs.",
                "Write them as columns='id string, name string'.",
            )
        for column in self.declared:
            if column.type not in _IN_CSV and not re.fullmatch(r"decimal\(\d+, ?\d+\)", column.type):
                raise DeclarationError(
                    f"column {column.name!r} has type {column.type!r}, which a CSV file cannot carry here",
                    f"use {', '.join(_IN_CSV)} or decimal(p, s).",
                    column=column.name,
                    choices=tuple(_IN_CSV),
                )
        names = [column.name for column in self.declared]
        unknown = [name for name in self.key if names and name not in names]
        if unknown:
            raise DeclarationError(
                f"{what} has no column {unknown[0]!r} for its key; it has: {', '.join(names)}.",
                column=unknown[0],
                choices=tuple(names),
            )

    def _check_history(self, what: str, history: History) -> None:
        if (self.key and self.key != history.result_key) or self.connection is not None:
            raise DeclarationError(
                f"{what} is history {history.name!r}, whose rows are told apart by {', '.join(history.result_key)}",
                "leave key and connection out.",
                operator=history.name,
            )
        object.__setattr__(self, "key", history.result_key)

    @property
    def path(self) -> str:
        """The place as text: of a history where its current rows are published in the lake."""
        place = self.place
        return place if isinstance(place, str) else f"{place.folder}/{place.table_name(CURRENT)}"

    @property
    def format(self) -> Format:
        """The format of what lies at its place, as the end of its name says where there is no connection."""
        if self.connection is not None:
            return "postgres"
        return next((format for suffix, format in _SUFFIXES.items() if self.path.endswith(suffix)), "delta")

    @property
    def declared(self) -> tuple[Column, ...]:
        """The columns of a CSV file, or of Postgres; of the others none is declared."""
        return columns_of(self.columns) if self.columns else ()

    @property
    def suite(self) -> Suite:
        """The expectations that every version must meet."""
        present = " and ".join(f"`{name}` is not null" for name in self.key)
        named = ", ".join(self.key)
        return Suite(
            (
                unique("unique_key", tuple(f"`{name}`" for name in self.key)),
                always("key_present", present, f"every row has its {named}"),
                *self.expectations,
            )
        )
