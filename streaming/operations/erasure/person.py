"""Whose rows are to be erased, and how they are told in a table."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, MapType, StructType

from streaming.base import ORIGIN, ErasureError
from streaming.declare import DEAD_LETTER
from streaming.spark import exact_json
from streaming.tables import Split

TEXTS = ("_raw", "payload", "row", "_request")
"""Columns that hold a row as text: rejected payloads, dead letters, late rows, what a service is asked."""


@dataclass(frozen=True)
class Person:
    """The rows in which the column `column` is `value`, as text."""

    column: str
    value: str

    @classmethod
    def of(cls, key: str) -> Person:
        """The person that `COLUMN=VALUE` names.

        Raises:
            ErasureError: it is not of that form.
        """
        column, equals, value = key.partition("=")
        if not equals or not value or not column.isidentifier():
            raise ErasureError(f"{key!r} names no rows; write --key COLUMN=VALUE, such as --key customer_id=c17.")
        return cls(column, value)

    def matches(self, frame: DataFrame, *, texts: tuple[str, ...] = TEXTS) -> Column:
        """True where a row is of the person by the column, by a field of that name in nested columns, or in `texts`."""
        parts = []
        for field in frame.schema.fields:
            if field.name in texts:
                parts.append(self._in_text(F.col(f"`{field.name}`").cast("string")))
            elif field.name == self.column and not isinstance(field.dataType, StructType | ArrayType | MapType):
                parts.append(F.col(f"`{field.name}`").cast("string") == self.value)
            elif isinstance(field.dataType, StructType | ArrayType | MapType) and field.name != ORIGIN:
                parts.append(exact_json(F.struct(F.col(f"`{field.name}`")), nulls=False).rlike(self._field))
        if {*DEAD_LETTER} <= {*frame.columns} and "payload" in texts:
            # What could not be computed of a row is not in its payload; the error has what it was made from.
            parts.append(self.field_of(F.col("payload")).isNull() & F.col("error").rlike(self._word))
        conditions = (F.coalesce(part, F.lit(False)) for part in parts)
        return reduce(Column.__or__, conditions, F.lit(False))

    def split(self) -> Split:
        """Rows of the person, and all others."""
        return Split(lambda rows: rows.where(self.matches(rows)), lambda rows: rows.where(~self.matches(rows)))

    def is_told_by(self, frame: DataFrame) -> bool:
        """True if a table with these columns can tell whose a row is by itself."""
        return self.column in frame.columns or any(name in TEXTS for name in frame.columns)

    def field_of(self, text: Column) -> Column:
        """The field of a JSON object that has the column's name; null where there is none, or the text is no JSON."""
        return F.get_json_object(text, f"$.{self.column}")

    def _in_text(self, text: Column) -> Column:
        """By the field of a JSON object; of what is none, or has no such field, the value has to stand there whole."""
        field = self.field_of(text)
        return F.when(field.isNotNull(), field == self.value).otherwise(text.rlike(self._word))

    @property
    def _word(self) -> str:
        return rf"(?<!\w){_quoted(self.value)}(?!\w)"

    @property
    def _field(self) -> str:
        return f"{_quoted(_as_json(self.column))}:{_quoted_either(self.value)}[,}}]"

    # The same without Spark, for the proof.

    def is_in_text(self, text: str) -> bool:
        """True if a text holds the person, as `matches` tells it."""
        try:
            parsed = json.loads(text)
        except ValueError:
            parsed = None
        if isinstance(parsed, dict) and parsed.get(self.column) is not None:
            return str(parsed[self.column]) == self.value
        return re.search(rf"(?<!\w){re.escape(self.value)}(?!\w)", text) is not None

    def is_in(self, value: Any) -> bool:
        """True if a nested value has a field of the column's name with the person's value."""
        if isinstance(value, dict):
            return any(
                str(each) == self.value if name == self.column else self.is_in(each) for name, each in value.items()
            )
        return isinstance(value, list | tuple) and any(self.is_in(each) for each in value)

    def is_in_statistics(self, text: str) -> bool:
        """True if an entry of a Delta log names the person's value as a bound of the column."""
        bound = rf'\\?"{re.escape(self.column)}\\?":\\?"?{re.escape(self.value)}\\?"?[,}}]'
        return re.search(bound, text) is not None


def _quoted(text: str) -> str:
    """A text as a pattern of Java that stands for itself."""
    return re.sub(r"(\W)", r"\\\1", text)


def _quoted_either(value: str) -> str:
    return f"({_quoted(_as_json(value))}|{_quoted(value)})"


def _as_json(text: str) -> str:
    """A text as Spark writes it in JSON, which leaves letters of all languages as they are."""
    return json.dumps(text, ensure_ascii=False)
