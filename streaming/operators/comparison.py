"""What is stored against what it must be, as bags of rows."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def differing_rows(stored: DataFrame, computed: DataFrame) -> int:
    """How many rows are in one of two frames of the same columns and not in the other, copies counted."""
    left, right = _comparable(stored), _comparable(computed)
    return left.exceptAll(right).count() + right.exceptAll(left).count()


def _comparable(rows: DataFrame) -> DataFrame:
    # A map cannot be compared as it is.
    return rows.select(F.to_json(F.struct("*"), {"ignoreNullFields": "false"}).alias("row"))
