"""Values as JSON that tells all of them: Spark's own cuts an instant after its milliseconds."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column
from pyspark.sql import functions as F

_EXACT = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "timeZone": "UTC",
}


def exact_json(value: Column, *, nulls: bool = True) -> Column:
    """A struct, list or map as JSON; fields that are null are left out without `nulls`."""
    return F.to_json(value, {**_EXACT, "ignoreNullFields": "false" if nulls else "true"})


def as_json(columns: Iterable[Column]) -> Column:
    """The columns as one JSON object, with its nulls."""
    fields = list(columns)
    return exact_json(F.struct(*fields)) if fields else F.lit("{}")
