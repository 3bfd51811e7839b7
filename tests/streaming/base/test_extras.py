"""What needs a package of an extra says which one, and nothing else needs it: seen where none of them is there."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest

from streaming.base import DISTRIBUTION
from streaming.base.extras import EXTRAS

PROJECT = Path(__file__).parents[3]
OPTIONAL = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["optional-dependencies"]

HIDDEN = """
import json, sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name in json.loads(sys.argv[1]):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden())
import tidemark
from importlib import import_module
from streaming.base import MissingExtra
from streaming.tables import s3

names = {name: getattr(tidemark, name) for name in dir(tidemark)}
catalogs = import_module("streaming.catalogs")
demonstration, lateness = (import_module(f"platform_assets.cli.{name}") for name in ("demonstration", "lateness"))
import_module("platform_assets.definitions")
said = {}
for text in json.loads(sys.argv[2]):
    try:
        eval(text, globals() | names)
    except MissingExtra as error:
        said[text] = str(error)
print(json.dumps(said))
"""
"""All of the facade and of the platform is imported, and each text evaluated, where the packages are not there."""

NEEDS = {
    "Kafka('localhost:9092', topic='orders')": "kafka",
    "KafkaTopic('localhost:9092', topic='orders')": "kafka",
    "Postgres('orders')": "postgres",
    "PostgresLookup('', 'select 1')": "postgres",
    "PostgresChanges('orders', 'slot')": "postgres",
    "Mqtt('localhost', ('sensors/#',), 'tidemark')": "mqtt",
    "RabbitMq('localhost', 'orders')": "rabbitmq",
    "DltPoll(dict)": "dlt",
    "Objects('s3://bucket/orders')": "s3",
    "s3.object_store('s3://bucket/orders')": "s3",
    "SqsQueue('https://sqs.eu-central-1.amazonaws.com/1/orders')": "s3",
    "IcebergTable('shop.orders')": "iceberg",
    "Avro('{}')": "avro",
    "Protobuf(descriptor_set=b'', message='shop.Order')": "protobuf",
    "catalogs.open_catalog(catalogs.CatalogSettings(kind='hive', url='thrift://localhost'))": "hive",
    "catalogs.open_catalog(catalogs.CatalogSettings(kind='glue'))": "glue",
    "lateness.lateness('flights')": "plots",
    "demonstration.demo()": "demo",
    "demonstration.live()": "demo",
}


def said(hidden: Iterable[str], texts: Iterable[str]) -> dict[str, str]:
    """The errors of those of the `texts` that ask for an extra where these packages are not there."""
    done = subprocess.run(
        [sys.executable, "-c", HIDDEN, json.dumps([*hidden]), json.dumps([*texts])],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    errors: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return errors


def test_without_any_extra_everything_is_imported_and_what_needs_one_names_it() -> None:
    errors = said(EXTRAS, NEEDS)
    for text, extra in NEEDS.items():
        assert errors[text].endswith(f"it comes with an extra: pip install '{DISTRIBUTION}[{extra}]'."), text
    assert errors["Postgres('orders')"].startswith("Postgres table 'orders' needs the package 'psycopg', which is not")


def test_only_what_needs_the_package_that_is_missing_is_refused() -> None:
    sound = [text for text, extra in NEEDS.items() if extra in ("kafka", "postgres", "s3")]
    assert {*said(["psycopg"], sound)} == {text for text in sound if NEEDS[text] == "postgres"}


@pytest.mark.parametrize(("package", "extra"), EXTRAS.items())
def test_an_extra_that_is_named_brings_the_package(package: str, extra: str) -> None:
    named_otherwise = {
        "google.protobuf": "protobuf",
        "hive_metastore": "pyiceberg",
        "paho": "paho-mqtt",
        "openlineage.client": "openlineage-python",
        "opentelemetry.sdk": "opentelemetry-sdk",
    }
    distribution = named_otherwise.get(package, package.replace("_", "-"))
    assert any(requirement.startswith(distribution) for requirement in OPTIONAL[extra])


def test_all_and_dev_bring_every_extra() -> None:
    (everything,) = OPTIONAL["all"]
    named = everything.removeprefix(f"{DISTRIBUTION}[").removesuffix("]").split(",")
    assert {*named} == {*OPTIONAL} - {"all", "dev", "docs"}
    assert f"{DISTRIBUTION}[all]" in OPTIONAL["dev"]
