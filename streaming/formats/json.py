"""Formats turn a payload into typed columns and reasons, as pure columns: never a failure, never a silent null.

A payload is parsed into the declared types, and where the result leaves no doubt about what the sender wrote, that
is all. The others, a few, are parsed once more, field by field into variants. A variant remembers the type that was
written, so a number in a string column is a reason rather than a silent coercion, and every broken field is named.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streaming.base import DeclarationError, check_column_name, sql

_INTEGERS = {"tinyint", "smallint", "int", "integer", "bigint", "long", "short", "byte"}
_FRACTIONS = {"double", "float"}
_NESTED = ("array<", "struct<", "map<")
_QUICK = {*_INTEGERS, "string", "boolean", "double"}
"""Types whose values Spark's parser yields as they are, or leaves out with the whole payload called corrupt."""

_COERCED_BEGIN, _COERCED_WORDS = '-+"[{', ("true", "false", "NaN", "Infinity", "INF")
"""How texts look that the parser makes of other values, besides digits in front."""

_CORRUPT = {"columnNameOfCorruptRecord": "_corrupt"}
_OFFSET = r"[0-9]T[0-9:.,]+(Z|[+-][0-9]{2}:?[0-9]{2})$"
_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_SHAPES = {"timestamp": _OFFSET, "date": _DATE}


@dataclass(frozen=True)
class Json:
    """One JSON object per payload, against a schema in Spark DDL; `not null` marks a required field.

    Types: string, boolean, integers, float, double, decimal(p, s), date, timestamp (ISO-8601 text *with* an
    offset), and array, struct or map of these. JSON `null` and a missing field are both null. Unknown fields are
    ignored.
    """

    schema: str

    def __post_init__(self) -> None:
        for column in self.columns:
            check_column_name(column.name)
            if _expected(column.type) is None:
                raise DeclarationError(
                    f"column {column.name!r} has type {column.type!r}, which JSON cannot carry here; use string, "
                    "boolean, int, bigint, double, decimal(p, s), date, timestamp, array<>, struct<> or map<>."
                )

    @cached_property
    def columns(self) -> tuple[sql.Column, ...]:
        """The declared columns, in order."""
        return sql.columns_of(self.schema)

    @cached_property
    def stages(self) -> tuple[dict[str, Column], ...]:
        """Columns to add to a frame with a column `_raw`, stage after stage: the last are those of `parse`.

        The stages before add helper columns beginning with `_`; `_careful` is null where one reading was enough.
        Each stage writes every row anew, so there are as few as may be.
        """
        text = F.col("_raw").cast("string")
        types = ", ".join(f"`{column.name}` {_parsed_as(column)}" for column in self.columns)
        parsed = F.from_json(text, f"{types}, _corrupt string", {**_CORRUPT, "allowNonNumericNumbers": "false"})
        doubted = ~F.coalesce(self._certain(), F.lit(False))
        return (
            {"_parsed": parsed},
            {_quick_name(column): _converted(column) for column in self.columns if column.type not in _QUICK},
            {"_careful": F.when(doubted, self._carefully(F.try_validate_utf8(text)))},
            {
                **{column.name: _value(column) for column in self.columns},
                "_unreadable": F.col("_careful.unreadable"),
                "_wrong": F.col("_careful.wrong"),
            },
        )

    def parse(self, raw: DataFrame) -> DataFrame:
        """`raw`, which has a column `_raw` of binary or of text that may be no UTF-8, with what each payload says.

        That is the declared columns, `_unreadable` (the reason against the payload as a whole) and `_wrong` (a struct:
        the reason against each column's value); reasons are null where all is well. A streaming frame will do, and is
        analysed once, which for a small batch costs more than the parsing.
        """
        frame = raw
        for columns in self.stages:
            frame = frame.withColumns(columns)
        declared = (F.col(f"`{column.name}`") for column in self.columns)
        return frame.select(*raw.columns, *declared, "_unreadable", "_wrong")

    def _certain(self) -> Column:
        """Whether the payload is one object, and each value of the first reading is what was written."""
        text, raw = F.col("_raw").cast("string"), F.col("_raw").cast("binary")
        # The only closing brace is the last character: nothing follows the object, and nothing is nested in it. Bytes
        # are cut and searched many times faster than characters.
        before = F.substring(raw, F.lit(1), F.octet_length(raw) - 1).cast("string")
        alone = text.startswith("{") & text.endswith("}") & ~before.contains("}")
        certain = alone & F.is_valid_utf8(text) & F.col("_parsed._corrupt").isNull()
        for column in self.columns:
            certain = certain & F.coalesce(_undoubted(column), F.lit(not column.required))
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
            return _let(F.struct(*kinds), lambda kinds: declared(document, kinds))

        def declared(document: Column, kinds: Column) -> Column:
            whole = document["_corrupt"].isNull()
            fields = (
                F.when(whole, _typed(column, document[column.name], kinds[column.name])).alias(column.name)
                for column in self.columns
            )
            return _let(F.struct(*fields), lambda fields: verdict(document, kinds, fields))

        def verdict(document: Column, kinds: Column, fields: Column) -> Column:
            unreadable = F.when(text.isNull(), F.lit("json: the payload is not UTF-8")).when(
                document.isNull() | document["_corrupt"].isNotNull(), F.lit("json: the payload is not one JSON object")
            )
            reasons = (_reason(column, kinds, fields).alias(column.name) for column in self.columns)
            wrong = F.when(unreadable.isNull(), F.struct(*reasons))
            return F.struct(unreadable.alias("unreadable"), wrong.alias("wrong"), fields.alias("declared"))

        return _let(document, read)


def _let(value: Column, body: Callable[[Column], Column]) -> Column:
    """`body` of the value, which is computed once.

    Spark interprets a lambda: what few rows need is not compiled anew for every batch.
    """
    return F.transform(F.array(value), body)[0]


def _parsed_as(column: sql.Column) -> str:
    if column.type in _SHAPES:
        return "string"
    return column.type if column.type in _QUICK else "variant"


def _parsed(column: sql.Column) -> Column:
    return F.col(f"_parsed.`{column.name}`")


def _quick_name(column: sql.Column) -> str:
    return f"_quick_{column.name}"


def _converted(column: sql.Column) -> Column:
    """The value of a column whose type the parser does not yield, null where what was written is of another."""
    value = _parsed(column)
    if column.type in _SHAPES:
        return _shaped(value, column.type)
    return _typed(column, value, F.schema_of_variant(value))


def _typed(column: sql.Column, value: Column, kind: Column) -> Column:
    """The variant `value` as it is declared, null where its `kind` is another."""
    if column.type in _SHAPES:
        typed = _shaped(F.try_variant_get(value, "$", "string"), column.type)
    else:
        typed = F.try_variant_get(value, "$", column.type)
    return F.when(_written_as(column, kind), typed)


def _shaped(text: Column, type_: str) -> Column:
    return F.when(text.rlike(_SHAPES[type_]), text.try_cast(type_))


def _undoubted(column: sql.Column) -> Column:
    """Whether the first reading's value can only be what was written; null where nothing was."""
    value = _parsed(column)
    if column.type not in _QUICK:
        return F.when(value.isNotNull(), F.col(f"`{_quick_name(column)}`").isNotNull())
    if column.type == "string":
        return ~_may_be_coerced(value)
    if column.type == "double":
        # Text such as "NaN" is taken for a number.
        return F.abs(value) < F.lit(float("inf"))
    return F.when(value.isNotNull(), F.lit(True))


def _may_be_coerced(value: Column) -> Column:
    """Whether it looks like what the parser makes of anything but a string, where a string is asked for; few do."""
    # A regular expression would search every text to its end.
    digit = (value >= "0") & (value < ":")
    return reduce(operator.or_, map(value.startswith, _COERCED_BEGIN), digit | value.isin(*_COERCED_WORDS))


def _value(column: sql.Column) -> Column:
    quick = F.col(f"`{_quick_name(column)}`") if column.type not in _QUICK else _parsed(column)
    # A variant knows no negative zero.
    quick = quick + F.lit(0.0) if column.type == "double" else quick
    return F.when(F.col("_careful").isNull(), quick).otherwise(F.col(f"_careful.declared.`{column.name}`"))


def _written_as(column: sql.Column, kind: Column) -> Column:
    number = kind.rlike("^(BIGINT|DOUBLE|FLOAT|DECIMAL)")
    if column.type in _INTEGERS:
        return kind == "BIGINT"
    if column.type in _FRACTIONS or column.type.startswith("decimal"):
        return number
    if column.type == "boolean":
        return kind == "BOOLEAN"
    if column.type.startswith("array<"):
        return kind.startswith("ARRAY")
    if column.type.startswith(_NESTED):
        return kind.startswith("OBJECT")
    return kind == "STRING"


def _expected(type_: str) -> str | None:
    if type_ in ("string", "boolean"):
        return f"a JSON {type_}"
    if type_ in _INTEGERS:
        return f"a whole number within {type_}"
    if type_ in _FRACTIONS or type_.startswith("decimal"):
        return f"a number within {type_}"
    if type_ == "timestamp":
        return "ISO-8601 text with an offset, such as 2026-01-01T00:00:00Z"
    if type_ == "date":
        return "text such as 2026-01-01"
    return f"a value of {type_}" if type_.startswith(_NESTED) else None


def _reason(column: sql.Column, kinds: Column, fields: Column) -> Column:
    kind = kinds[column.name]
    written = F.coalesce(kind != "VOID", F.lit(False))
    reason = F.when(
        written & fields[column.name].isNull(),
        F.concat(F.lit(f"type: {column.name} is not {_expected(column.type)}, got "), F.lower(kind)),
    )
    return reason.when(~written, F.lit(f"required: {column.name} is missing")) if column.required else reason
