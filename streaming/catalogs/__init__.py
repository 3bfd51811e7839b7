"""Catalogs of other engines: what the lake publishes, told to Unity Catalog, Hive, Glue, or an Iceberg REST catalog."""

from typing import TYPE_CHECKING

from streaming.base.fronts import make_front

if TYPE_CHECKING:
    from streaming.catalogs.catalog import Catalog, CatalogKind
    from streaming.catalogs.entries import CatalogColumn, TableEntry, lake_entries, lake_uri
    from streaming.catalogs.settings import CatalogSettings, open_catalog
    from streaming.catalogs.sync import Change, Difference, apply_difference, compare

make_front(__name__)
