"""Rows, pairs and groups in the side output `failed`, where that is a read of the logs."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column
from pyspark.sql import functions as F


def as_json(columns: Iterable[Column]) -> Column:
    """The columns as one JSON object, with its nulls."""
    fields = list(columns)
    return F.to_json(F.struct(*fields), {"ignoreNullFields": "false"}) if fields else F.lit("{}")
