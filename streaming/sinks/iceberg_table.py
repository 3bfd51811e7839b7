"""Rows into an Iceberg table, exactly once: the progress is a property of the table, set by the commit of the rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from streaming.base import (
    Dataset,
    DeclarationError,
    FrozenMapping,
    check_mapping,
    check_type,
    names_variables_only,
    needs,
    password_in,
)
from streaming.lake import Lake
from streaming.sinks.delta_table import Mode, settle_mode
from streaming.sinks.sink import Delivered, Guarantee, Sink, Target

_SECRET = ("password", "secret", "token", "credential", "account-key", "connection-string", "header.")


@dataclass(frozen=True)
class IcebergTable(Target):
    """Rows of the Iceberg table `name`, such as `shop.orders`, of a catalog; it comes with the extra `iceberg`.

    `catalog` are properties as PyIceberg takes them: `type` (`sql`, `rest`, `glue`, ...), `uri` and `warehouse`, those
    of the storage (`s3.endpoint`), and `name`, under which the catalog keeps its tables (`default` where it is left
    out). A SQL catalog is in a file, `sqlite:////data/catalog.db`, or in a database,
    `postgresql+psycopg://etl:${PG_PASSWORD}@db.example/catalog`. Text such as `"${PG_PASSWORD}"` is taken from the
    environment when it is needed, and secrets, with every `header.`, can be given in no other way. A URI has no query,
    or is a variable as a whole. Namespace and table are created where they are not there.

    `key` and `mode` are those of `DeltaTable`, as is how rows replace each other, what fits into a table that is there,
    and what an upsert costs; the table may be partitioned.

    Each batch is one snapshot, whose summary says which (`tidemark.delivery`, `tidemark.generation`,
    `tidemark.batch`), and which replaces files and sets the property `tidemark.progress.<delivery>` at once: readers
    see all of a batch or nothing, and snapshots may be expired at any time. Expiring them is left to whoever maintains
    the table.

    Raises:
        DeclarationError: `name` has no namespace, a property holds a secret, or as `DeltaTable`.
        MissingExtra: PyIceberg is not installed.
    """

    name: str
    catalog: Mapping[str, str] = field(default_factory=dict)
    key: tuple[str, ...] = ()
    mode: Mode = "upsert"
    batch: int = 100_000

    kind: ClassVar[str] = "iceberg"
    guarantee: ClassVar[Guarantee] = "exactly once"

    def __post_init__(self) -> None:
        check_type("name of IcebergTable", self.name, str, "namespace and table, such as 'shop.orders'")
        of = f"IcebergTable {self.name!r}"
        needs("pyiceberg", of)
        parts = self.name.split(".")
        if len(parts) < 2 or not all(parts):
            raise DeclarationError(
                f"name={self.name!r} of IcebergTable names no table in a namespace", "write 'shop.orders'."
            )
        check_mapping(f"catalog of {of}", self.catalog, str, "a dict from property to text")
        object.__setattr__(self, "catalog", FrozenMapping(self.catalog))
        for name, value in self.catalog.items():
            secret = value if any(word in name.lower() for word in _SECRET) else password_in(value)
            if not names_variables_only(secret):
                raise DeclarationError(
                    f"property {name!r} of {of} holds a secret, which would be in the code and in what is shown of it",
                    "name a variable of the environment in its place, such as '${PG_PASSWORD}'.",
                    field=name,
                )
            sign = next((each for each in "?#" if "://" in value and each in value), None)
            if sign is not None:
                raise DeclarationError(
                    f"property {name!r} of {of} is a URI with {sign!r}, behind which a secret may stand",
                    "leave that out, or name a variable of the environment that is the whole URI, such as "
                    "'${CATALOG_URI}'.",
                    field=name,
                )
        settle_mode(self, self.mode, of)

    @property
    def address(self) -> str:
        """Catalog and table."""
        of = self.catalog.get("uri") or self.catalog.get("type") or self.catalog.get("name", "default")
        scheme, sign, rest = of.partition("://")
        authority, slash, path = rest.partition("/")
        return f"{scheme}{sign}{authority.rpartition('@')[2]}{slash}{path}: {self.name}"

    def datasets(self, lake: Lake) -> tuple[Dataset, ...]:
        """The table in its catalog: where its files lie, only the catalog knows."""
        place, _, table = self.address.rpartition(": ")
        return (Dataset(place, table),)

    def connect(self, lake: Lake, delivered: Delivered) -> Sink:
        """Opens the catalog when it is used first."""
        # Only who writes to Iceberg tables loads PyIceberg.
        from streaming.sinks.iceberg_table_sink import IcebergSink

        return IcebergSink(self.name, self.catalog, self.address, delivered, upserts=self.mode == "upsert")
