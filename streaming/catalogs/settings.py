"""Settings that say which catalog tables are told to, and the connection to it."""

from __future__ import annotations

from typing import get_args

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from streaming.base import SettingsError, needs
from streaming.catalogs.catalog import Catalog, CatalogKind

_ADDRESSES = {
    "unity": "http://localhost:8080",
    "hive": "thrift://localhost:9083",
    "iceberg-rest": "http://localhost:8181/api/catalog",
}
"""An address of each kind of catalog that needs one, as an example."""


class CatalogSettings(BaseSettings):
    """The catalog that the lake is told to; read from variables `TIDEMARK_CATALOG_*` of the environment when built."""

    model_config = SettingsConfigDict(
        env_prefix="TIDEMARK_CATALOG_", extra="ignore", env_ignore_empty=True, populate_by_name=True
    )

    kind: CatalogKind | None = Field(
        default=None, description="Kind of the catalog that tables are told to: unity, hive, glue or iceberg-rest."
    )
    url: str | None = Field(default=None, description="Address of the catalog; of glue, where it is not Amazon's own.")
    name: str | None = Field(
        default=None, description="Name of the catalog in Unity Catalog, warehouse of an Iceberg REST one, id in Glue."
    )
    schema_name: str | None = Field(
        default=None,
        validation_alias="TIDEMARK_CATALOG_SCHEMA",
        description="Schema of all tables in the catalog; without it, each pipeline has one of its name.",
    )
    token: SecretStr | None = Field(default=None, description="Token that the catalog asks for.")

    @field_validator("kind", mode="before")
    @classmethod
    def _known_kind(cls, value: object) -> object:
        if value is None or value in get_args(CatalogKind):
            return value
        choices = get_args(CatalogKind)
        raise SettingsError(
            f"TIDEMARK_CATALOG_KIND={value!r} is none of {', '.join(choices)}",
            "set it to one of them, or unset it.",
            field="TIDEMARK_CATALOG_KIND",
            value=value,
            choices=choices,
        )


def open_catalog(settings: CatalogSettings) -> Catalog:
    """The catalog that the settings name; nothing is asked of its server yet.

    Raises:
        SettingsError: no catalog is set, or its address or name is missing or cannot be.
        MissingExtra: it is of a kind whose library is not installed.
    """
    kinds = get_args(CatalogKind)
    token = settings.token.get_secret_value() if settings.token is not None else None
    match settings.kind:
        case "unity":
            from streaming.catalogs.unity import UnityCatalog

            return UnityCatalog(_required(settings, "url"), _required(settings, "name"), token)
        case "iceberg-rest":
            from streaming.catalogs.iceberg_rest import IcebergRestCatalog

            return IcebergRestCatalog(_required(settings, "url"), _required(settings, "name"), token)
        case "hive":
            needs("hive_metastore", "a catalog of kind hive")
            from streaming.catalogs.hive import HiveCatalog

            return HiveCatalog(_required(settings, "url"))
        case "glue":
            needs("boto3", "a catalog of kind glue")
            from streaming.catalogs.glue import GlueCatalog

            return GlueCatalog(settings.url, settings.name)
    raise SettingsError(
        "no catalog is set",
        f"set TIDEMARK_CATALOG_KIND, or give --to; kinds are {', '.join(kinds)}.",
        field="TIDEMARK_CATALOG_KIND",
        choices=kinds,
    )


def _required(settings: CatalogSettings, name: str) -> str:
    """The setting of that name, which this kind of catalog cannot do without."""
    value: str | None = getattr(settings, name)
    if value is not None:
        return value
    variable, kind = f"TIDEMARK_CATALOG_{name.upper()}", str(settings.kind)
    example = _ADDRESSES[kind] if name == "url" else "main"
    raise SettingsError(
        f"a catalog of kind {kind} needs {variable}, which is not set",
        f"set it, such as {variable}={example}.",
        field=variable,
    )
