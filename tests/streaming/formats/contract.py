"""What every format must do: run it over one of your own by giving payloads and what they say."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Row, SparkSession

from streaming.formats import UNKNOWN, UNREADABLE, WRONG, Format


@dataclass(frozen=True)
class Samples:
    """Payloads of a format by what they are.

    `good`: payload to declared values. `wrong`: payload to the columns that cannot be read or are missing. `unknown`:
    payload to the fields that nobody declared. `unreadable`: payloads that are none of this format at all.
    """

    good: Mapping[bytes, Mapping[str, Any]]
    wrong: Mapping[bytes, frozenset[str]]
    unknown: Mapping[bytes, frozenset[str]]
    unreadable: tuple[bytes, ...]


def check_format(spark: SparkSession, form: Format, samples: Samples) -> None:
    """Parse all samples in one frame, with a row for what no format can know: no payload at all."""
    assert hash(form) == hash(copy.deepcopy(form)) and pickle.loads(pickle.dumps(form)) == form
    names = [column.name for column in form.columns]
    assert names and not any(name.startswith("_") for name in names)

    payloads = [*samples.good, *samples.wrong, *samples.unknown, *samples.unreadable]
    raw = spark.createDataFrame([*enumerate([*payloads, None])], "n int, _raw binary")
    parsed = form.parse(raw)
    assert parsed.columns == ["n", "_raw", *names, UNREADABLE, WRONG, UNKNOWN]
    collected = parsed.collect()
    rows = {bytes(row["_raw"]): row for row in collected if row["_raw"] is not None}
    # Nothing is lost and nothing is changed: a row for each payload, byte for byte.
    assert sorted(rows) == sorted(set(payloads)) and len(collected) == len(payloads) + 1
    (nothing,) = (row for row in collected if row["_raw"] is None)
    assert (nothing[UNREADABLE], _reasons(nothing), nothing[UNKNOWN]) == (None, frozenset(), None)
    assert all(nothing[name] is None for name in names)

    for payload, values in samples.good.items():
        row = rows[payload]
        assert {name: row[name] for name in values} == values, payload
        assert (row[UNREADABLE], _reasons(row), row[UNKNOWN]) == (None, frozenset(), None), payload
    for payload, columns in samples.wrong.items():
        row = rows[payload]
        assert (row[UNREADABLE], _reasons(row)) == (None, columns), payload
        assert all(row[name] is None for name in columns), payload
    for payload, fields in samples.unknown.items():
        row = rows[payload]
        assert (row[UNREADABLE], frozenset(row[UNKNOWN])) == (None, fields), payload
    for payload in samples.unreadable:
        row = rows[payload]
        assert row[UNREADABLE] and row[UNKNOWN] is None, payload
        assert all(row[name] is None for name in names), payload


def _reasons(row: Row) -> frozenset[str]:
    wrong = row[WRONG]
    return frozenset() if wrong is None else frozenset(name for name, reason in wrong.asDict().items() if reason)
