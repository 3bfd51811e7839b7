"""The contract of a catalog of other engines, which registers Delta tables that lie elsewhere.

To add a kind of catalog, fill in `Catalog`, name it in `CatalogKind` and `open_catalog`, and give the tests in
`tests/streaming/catalogs/contract.py` an instance.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import TracebackType
from typing import ClassVar, Literal, Self

from streaming.base import CatalogError
from streaming.catalogs.entries import TableEntry

CatalogKind = Literal["unity", "hive", "glue", "iceberg-rest"]
"""The kinds of catalogs that tables can be told to."""


class Catalog(ABC):
    """A connection to a catalog, used within `with`; every method asks the server, and nothing is remembered.

    All methods raise CatalogError where the server is away, refuses, or answers what cannot be.
    """

    kind: ClassVar[CatalogKind]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    @abstractmethod
    def address(self) -> str:
        """The place of the server, for people: without a token, user or password."""

    def full_name(self, entry: TableEntry) -> str:
        """The name by which SQL calls a table."""
        return str(entry)

    def as_held(self, entry: TableEntry) -> TableEntry:
        """The entry as this catalog gives it back once it was created: what it cannot hold is cut or left out."""
        return entry

    @abstractmethod
    def schemas_of(self, lake: str) -> tuple[str, ...]:
        """The schemas that were made from here for the lake at this URI."""

    @abstractmethod
    def tables(self, schema: str) -> Mapping[str, TableEntry]:
        """All tables of a schema by name, whoever has made them; none where there is no such schema."""

    @abstractmethod
    def create_schema(self, schema: str, properties: Mapping[str, str]) -> None:
        """Make a schema with these properties; one that is there stays as it is."""

    @abstractmethod
    def create(self, entry: TableEntry) -> None:
        """Register a table that is not there."""

    @abstractmethod
    def change(self, entry: TableEntry, standing: TableEntry) -> None:
        """Make a table that is there as `standing` one that is as `entry`; properties of others stay."""

    @abstractmethod
    def withdraw(self, entry: TableEntry) -> None:
        """Take a table out of the catalog; its files stay, and one that is not there any more is no error."""

    def register_anew(self, entry: TableEntry, standing: TableEntry) -> None:
        """Take a table out and register it as it is to be, where a catalog cannot change it in place.

        Raises:
            CatalogError: with a text that says whether the table is in the catalog now.
        """
        self.withdraw(standing)
        try:
            self.create(entry.beside(standing))
        except CatalogError as error:
            raise CatalogError(
                f"{self.full_name(entry)} was taken out to be changed, and is not in the catalog now: {error}",
                "Run the command again, which registers it.",
                address=self.address,
                value=self.full_name(entry),
            ) from error

    @abstractmethod
    def close(self) -> None:
        """Give back what the connection holds; it cannot be used any more."""
