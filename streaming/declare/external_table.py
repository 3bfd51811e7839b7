"""The declaration of a table that an SQL view reads and nobody in its pipeline writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from streaming.base import (
    DeclarationError,
    check_column_name,
    check_name,
    check_type,
    columns_of,
    is_only_place,
    place_in,
)
from streaming.declare.operator import CURRENT, Operator


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
