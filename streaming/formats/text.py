"""Text: the whole payload is one value."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streaming.base import check_column_name, check_name, sql
from streaming.formats.format import UNKNOWN, UNREADABLE, WRONG, Format


@dataclass(frozen=True)
class Text(Format):
    """The payload is one text in UTF-8, which becomes the column of this name.

    Raises:
        DeclarationError: the name is not allowed.
    """

    column: str = "value"

    def __post_init__(self) -> None:
        check_column_name(self.column)
        check_name("column", self.column)

    @property
    def columns(self) -> tuple[sql.Column, ...]:
        """The one column."""
        return (sql.Column(self.column, "string", required=False),)

    def parse(self, raw: DataFrame) -> DataFrame:
        """As the contract says; what is no UTF-8 cannot be read, and everything else can."""
        text = F.try_validate_utf8(F.col("_raw").cast("string"))
        unreadable = F.when(F.col("_raw").isNotNull() & text.isNull(), F.lit("text: the payload is not UTF-8"))
        return raw.select(
            *raw.columns,
            text.alias(self.column),
            unreadable.alias(UNREADABLE),
            F.struct(F.lit(None).cast("string").alias(self.column)).alias(WRONG),
            F.lit(None).cast("array<string>").alias(UNKNOWN),
        )
