"""Formats turn a payload into typed columns and reasons, as pure columns: never a failure, never a silent null.

A payload is parsed once, field by field into variants. A variant remembers the type the sender wrote, so a
number in a string column is a reason rather than a silent coercion, and every broken field is named.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import Column
from pyspark.sql import functions as F

from streaming import sql
from streaming.errors import DeclarationError
from streaming.names import check_column_name

_INTEGERS = {"tinyint", "smallint", "int", "integer", "bigint", "long", "short", "byte"}
_FRACTIONS = {"double", "float"}
_NESTED = ("array<", "struct<", "map<")
_OFFSET = r"[0-9]T[0-9:.,]+(Z|[+-][0-9]{2}:?[0-9]{2})$"
_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"


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
        """Columns to add to a frame with a binary column `_raw`, stage after stage: the declared ones come last.

        The stages before add helper columns beginning with `_`, which `unreadable` and `wrong` refer to.
        """
        fields = ", ".join(f"`{column.name}` variant" for column in self.columns)
        text = F.col("_text")
        # from_json reads the first value and ignores what follows it; the array length sees the rest.
        elements = F.coalesce(F.json_array_length(F.concat(F.lit("["), text, F.lit("]"))), F.lit(0))
        document = F.from_json(text, f"{fields}, _corrupt string", {"columnNameOfCorruptRecord": "_corrupt"})
        readable = F.col("_document").isNotNull() & F.col("_document._corrupt").isNull()
        kinds = (F.schema_of_variant(_field(column)).alias(column.name) for column in self.columns)
        return (
            {"_text": F.try_validate_utf8(F.col("_raw").cast("string"))},
            {"_document": F.when(text.rlike(r"^\s*\{") & (elements == 1), document)},
            {"_readable": readable, "_kinds": F.struct(*kinds)},
            {column.name: _value(column) for column in self.columns},
        )

    @cached_property
    def unreadable(self) -> Column:
        """The reason against a payload as a whole, null where it could be read."""
        return F.when(
            ~F.col("_readable"),
            F.when(F.col("_text").isNull(), F.lit("json: the payload is not UTF-8")).otherwise(
                F.lit("json: the payload is not one JSON object")
            ),
        )

    @cached_property
    def wrong(self) -> dict[str, Column]:
        """Per declared column the reason against its value, null where it is as declared."""
        return {column.name: _reason(column) for column in self.columns}


def _field(column: sql.Column) -> Column:
    return F.col(f"_document.`{column.name}`")


def _kind(column: sql.Column) -> Column:
    return F.col(f"_kinds.`{column.name}`")


def _present(column: sql.Column) -> Column:
    return F.col("_readable") & F.coalesce(_kind(column) != "VOID", F.lit(False))


def _value(column: sql.Column) -> Column:
    if column.type in ("timestamp", "date"):
        text = F.try_variant_get(_field(column), "$", "string")
        shaped = text.rlike(_OFFSET if column.type == "timestamp" else _DATE)
        value = F.when(shaped, text.try_cast(column.type))
    else:
        value = F.try_variant_get(_field(column), "$", column.type)
    return F.when(_present(column) & _written_as(column), value).otherwise(F.lit(None).cast(column.type))


def _written_as(column: sql.Column) -> Column:
    kind = _kind(column)
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


def _reason(column: sql.Column) -> Column:
    wrong = _present(column) & F.col(f"`{column.name}`").isNull()
    reason = F.when(
        wrong,
        F.concat(F.lit(f"type: {column.name} is not {_expected(column.type)}, got "), F.lower(_kind(column))),
    )
    if column.required:
        missing = F.col("_readable") & ~_present(column)
        reason = reason.when(missing, F.lit(f"required: {column.name} is missing"))
    return reason
