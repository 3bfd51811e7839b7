"""JSON: typed columns and reasons, as pure columns: never a failure, never a silent null.

A payload is parsed into the declared types, and where the result leaves no doubt about what the sender wrote, that
is all. The others, a few, are parsed once more, field by field into variants. A variant remembers the type that was
written, so a number in a string column is a reason rather than a silent coercion, and every broken field is named.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streaming.base import DeclarationError, check_column_name, sql
from streaming.formats.format import UNKNOWN, UNREADABLE, WRONG, Format
from streaming.formats.json_types import (
    QUICK,
    converted,
    expected,
    parsed_as,
    quick_name,
    reason,
    typed,
    undoubted,
    value,
)
from streaming.formats.json_unknown import may_hold_others, undeclared
from streaming.formats.once import once

_CORRUPT = {"columnNameOfCorruptRecord": "_corrupt"}
_STRICT = {**_CORRUPT, "allowNonNumericNumbers": "false", "allowSingleQuotes": "false"}


@dataclass(frozen=True)
class Json(Format):
    """One JSON object per payload, against a schema in Spark DDL; `not null` marks a required field.

    Types: string, boolean, integers, float, double, decimal(p, s), date, timestamp (ISO-8601 text *with* an
    offset), and array, struct or map of these. JSON `null` and a missing field are both null. Fields that are not
    declared are named, those within a struct by their path, and their values ignored; names are told apart by their
    case.

    Raises:
        DeclarationError: the schema cannot be read, or has a name or type that is not allowed.
    """

    schema: str

    def __post_init__(self) -> None:
        for column in self.columns:
            check_column_name(column.name)
            if expected(column.type) is None:
                raise DeclarationError(
                    f"column {column.name!r} has type {column.type!r}, which JSON cannot carry here; use string, "
                    "boolean, int, bigint, double, decimal(p, s), date, timestamp, array<>, struct<> or map<>."
                )

    @cached_property
    def columns(self) -> tuple[sql.Column, ...]:
        """The declared columns, in order."""
        return sql.columns_of(self.schema)

    @property
    def stages(self) -> tuple[dict[str, Column], ...]:
        """Columns to add to a frame with a column `_raw`, stage after stage: the last are those of `parse`.

        The stages before add helper columns beginning with `_`; `_careful` is null where one reading was enough.
        Each stage writes every row anew, so there are as few as may be.
        """
        text = F.col("_raw").cast("string")
        types = ", ".join(f"`{column.name}` {parsed_as(column)}" for column in self.columns)
        parsed = F.from_json(text, f"{types}, _corrupt string", _STRICT)
        doubted = ~F.coalesce(self._certain(), F.lit(False))
        readable = F.col("_careful.unreadable").isNull()
        asked = F.col("_careful").isNotNull() | may_hold_others(text, self.columns)
        return (
            {"_parsed": parsed},
            {quick_name(column): converted(column) for column in self.columns if column.type not in QUICK},
            {"_careful": F.when(doubted & F.col("_raw").isNotNull(), self._carefully(F.try_validate_utf8(text)))},
            {
                **{column.name: value(column) for column in self.columns},
                UNREADABLE: F.col("_careful.unreadable"),
                WRONG: F.col("_careful.wrong"),
                UNKNOWN: F.when(asked & readable, undeclared(text, self.columns)),
            },
        )

    def parse(self, raw: DataFrame) -> DataFrame:
        """As the contract says; analysed once, which for a small batch costs more than the parsing."""
        frame = raw
        for columns in self.stages:
            frame = frame.withColumns(columns)
        declared = (F.col(f"`{column.name}`") for column in self.columns)
        return frame.select(*raw.columns, *declared, UNREADABLE, WRONG, UNKNOWN)

    def _certain(self) -> Column:
        """Whether the payload is one object, and each value of the first reading is what was written."""
        text, raw = F.col("_raw").cast("string"), F.col("_raw").cast("binary")
        # The only closing brace is the last character: nothing follows the object, and nothing is nested in it. Bytes
        # are cut and searched many times faster than characters.
        before = F.substring(raw, F.lit(1), F.octet_length(raw) - 1).cast("string")
        alone = text.startswith("{") & text.endswith("}") & ~before.contains("}")
        certain = alone & F.is_valid_utf8(text) & F.col("_parsed._corrupt").isNull()
        for column in self.columns:
            certain = certain & F.coalesce(undoubted(column), F.lit(not column.required))
        return certain

    def _carefully(self, text: Column) -> Column:
        """A struct: the reason against the payload, `unreadable`; by column, what is `wrong` and what is `declared`."""
        types = ", ".join(f"`{column.name}` variant" for column in self.columns)
        # from_json reads the first value and ignores what follows it; the array length sees the rest.
        elements = F.coalesce(F.json_array_length(F.concat(F.lit("["), text, F.lit("]"))), F.lit(0))
        one = text.rlike(r"^\s*\{") & (elements == 1)
        document = F.when(one, F.from_json(text, f"{types}, _corrupt string", _CORRUPT))

        def read(document: Column) -> Column:
            kinds = (F.schema_of_variant(document[column.name]).alias(column.name) for column in self.columns)
            return once(F.struct(*kinds), lambda kinds: declared(document, kinds))

        def declared(document: Column, kinds: Column) -> Column:
            whole = document["_corrupt"].isNull()
            fields = (
                F.when(whole, typed(column, document[column.name], kinds[column.name])).alias(column.name)
                for column in self.columns
            )
            return once(F.struct(*fields), lambda fields: verdict(document, kinds, fields))

        def verdict(document: Column, kinds: Column, fields: Column) -> Column:
            unreadable = F.when(text.isNull(), F.lit("json: the payload is not UTF-8")).when(
                document.isNull() | document["_corrupt"].isNotNull(), F.lit("json: the payload is not one JSON object")
            )
            reasons = (reason(column, kinds, fields).alias(column.name) for column in self.columns)
            wrong = F.when(unreadable.isNull(), F.struct(*reasons))
            return F.struct(unreadable.alias("unreadable"), wrong.alias("wrong"), fields.alias("declared"))

        return once(document, read)
