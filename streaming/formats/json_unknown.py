"""Fields of a JSON object that nobody declared."""

from __future__ import annotations

import json
import operator
from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F

from streaming.base import sql
from streaming.formats.json_types import parsed, written_in_quotes
from streaming.formats.once import once


def undeclared(text: Column, columns: Sequence[sql.Column]) -> Column:
    """The names of the object's own fields that are none of `columns`, each once; null where there is none."""
    # The same parser that reads the values, so that it takes what they take; as text any value can be read.
    names = F.map_keys(F.from_json(text, "map<string, string>"))
    others = F.array_except(names, F.array(*(F.lit(column.name) for column in columns)))
    return once(others, lambda names: F.when(F.size(names) > 0, names))


def may_hold_others(text: Column, columns: Sequence[sql.Column]) -> Column:
    """False only for a flat object that has no other fields than `columns`; asked of every row, hence cheap.

    The parsed values tell how many double quotes the object has at least: two around the name of a field, two around a
    text. With no more than that nothing else is there. The first reading takes no single quotes.
    """
    explained = reduce(operator.add, (_quotes_of(text, column) for column in columns))
    # All of the text where there is no further quote; counting would copy it piece by piece.
    before_another = F.call_function("substring_index", text, F.lit('"'), explained + 1)
    return F.octet_length(before_another) < F.octet_length(text)


def _quotes_of(text: Column, column: sql.Column) -> Column:
    """The double quotes that the field of a column has at least, where its value is as it was written."""
    name = json.dumps(column.name, ensure_ascii=False)
    # Inside a text these would have a backslash before the second quote.
    null = text.contains(f"{name}:null") | text.contains(f"{name}: null")
    present = F.lit(4 if written_in_quotes(column) else 2)
    return F.when(parsed(column).isNotNull(), present).when(null, F.lit(2)).otherwise(F.lit(0))
