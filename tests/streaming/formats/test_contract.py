"""Every format keeps the contract, and the contract sees one that makes a silent null."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.formats.json import Json
from tests.streaming.formats.contract import Samples, check_format

SCHEMA = "id string not null, value double"
SAMPLES = Samples(
    good={b'{"id": "a", "value": 1.5}': {"id": "a", "value": 1.5}, b'{"id": "b"}': {"id": "b", "value": None}},
    wrong={
        b'{"id": "c", "value": "1.5"}': frozenset({"value"}),
        b'{"value": 2}': frozenset({"id"}),
        b'{"id": 7, "value": true}': frozenset({"id", "value"}),
    },
    unknown={
        b'{"id": "d", "value": 1, "colour": "red"}': frozenset({"colour"}),
        b'{"id": "e", "x": {"y": 1}, "z": null}': frozenset({"x", "z"}),
    },
    unreadable=(b"", b"not json", b"[1]", b'{"id": "f"', b'{"id": "g"} {"id": "h"}', b'{"id": "\xff"}'),
)


def test_json_keeps_the_contract(spark: SparkSession) -> None:
    check_format(spark, Json(SCHEMA), SAMPLES)


@dataclass(frozen=True)
class Silent(Json):
    """Forgets the reasons against values."""

    def parse(self, raw: DataFrame) -> DataFrame:
        parsed = super().parse(raw)
        return parsed.withColumn("_wrong", F.lit(None).cast(parsed.schema["_wrong"].dataType))


def test_the_contract_sees_a_silent_null(spark: SparkSession) -> None:
    with pytest.raises(AssertionError):
        check_format(spark, Silent(SCHEMA), SAMPLES)
