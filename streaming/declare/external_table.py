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


@dataclass(frozen=True)
class ExternalTable:
    """A Delta table that somebody else writes, under the `name` by which the query of an SQL view reads it in `from`.

    `uri` is relative to the lake's root unless it is absolute or a URI. `schema` are the columns that queries may name,
    in Spark DDL: the table may have more, and these must have the declared types.

    Each step of a view reads one version of the table. Rows that differ between that and the version of the step before
    are found by the files that differ, so that a row that was changed touches its keys alone. Where the version before
    cannot be read any more, as after `VACUUM`, or another table is there, the whole view is computed anew.

    Raises:
        DeclarationError: the name is not allowed, `uri` is no place or has a credential in it, or there is no column.
        BadExpression: `schema` is no list of names and types.
    """

    name: str
    uri: str
    schema: str

    def __post_init__(self) -> None:
        what = f"external table {self.name!r}"
        check_name("external table", self.name)
        check_type(f"uri of {what}", self.uri, str, "a folder or URI, such as 's3://bucket/regions'")
        if not self.uri.strip("/"):
            raise DeclarationError(
                f"uri={self.uri!r} of {what} names no place", "write 'dimensions/regions' or 's3://bucket/regions'."
            )
        if not is_only_place(self.uri):
            raise DeclarationError(
                f"the uri {place_in(self.uri)} of {what} has more in it than a place",
                "leave user, password and query out; credentials are in the environment, such as AWS_ACCESS_KEY_ID.",
            )
        for name in self.types:
            check_column_name(name)
        if not self.types:
            raise DeclarationError(
                f"{what} has no columns", "name those that the query reads: schema='id bigint, name string'."
            )

    @cached_property
    def types(self) -> Mapping[str, str]:
        """The Spark types of its columns, by name."""
        return {column.name: column.type for column in columns_of(self.schema)}

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of its columns."""
        return tuple(self.types)
