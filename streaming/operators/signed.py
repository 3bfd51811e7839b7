"""Signed rows: those that an operator adds, and those that take one of them back, with the same values and identity."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as SortedBy
from pyspark.sql import functions as F

from streaming.base import BATCH, ORIGIN, SIGN
from streaming.declare import Operator, Stream
from streaming.lake import Lake
from streaming.log import can_retract, first_retraction, identity_of_row, sign_of_row
from streaming.operators.comparison import Finding

IDENTITY = "_identity"
"""The column of `signs` that a row has in common with those that take it back."""


def sign_in(stream: Stream) -> Column:
    """The sign of a row of the stream's log: -1 where it takes back another one, 1 for all others."""
    return F.col(ORIGIN)["change"] if stream.takes_back else F.lit(1)


def identity_in(stream: Stream) -> Column:
    """The identity of a row of the stream's log, which the row that takes it back has, too."""
    return F.col(ORIGIN)["identity"] if stream.takes_back else F.md5(F.to_json(F.struct(BATCH, ORIGIN)))


def signs(stream: Stream, rows: DataFrame | None) -> dict[str, Column]:
    """The columns `_change`, -1 where a row takes another one back, and its identity; none where no row of it may.

    Of a stream that does not say it of all its rows, some may be taken back by hand, which `rows` of its log tell.
    """
    origin = F.col(ORIGIN)
    if stream.takes_back:
        return {SIGN: origin["change"], IDENTITY: origin["identity"]}
    if rows is not None and can_retract(rows):
        return {SIGN: sign_of_row(rows), IDENTITY: F.to_json(identity_of_row(rows))}
    return {}


def signed_from(lake: Lake, stream: Stream) -> int | None:
    """The first batch of the stream's log that may take rows back; None where none does. Starts no Spark."""
    return 0 if stream.takes_back else first_retraction(lake, stream)


def standing_among(rows: DataFrame, stream: Stream) -> DataFrame:
    """Those of the `rows` of the stream's log that no other one of them takes back, with the columns of the log."""
    columns = signs(stream, rows)
    return net(rows.withColumns(columns), [IDENTITY], [BATCH, ORIGIN]).drop(*columns) if columns else rows


def net(signed: DataFrame, same: Sequence[str], newest: Sequence[str]) -> DataFrame:
    """The rows that are added and not taken back; of an identity that is there several times, the newest.

    `same` are the columns of an identity, and `newest` order the rows of one. Rows are counted and no values are added
    up, since sums of doubles would drift.
    """
    identity = SortedBy.partitionBy(*same)
    order = identity.orderBy(F.desc(SIGN), *map(F.desc, newest))
    counted = signed.withColumns({"_net": F.sum(SIGN).over(identity), "_newest": F.row_number().over(order)})
    return counted.where("_newest <= _net").drop("_net", "_newest")


def are_net(operator: Operator, signed: DataFrame, same: Sequence[str], table: str = "") -> Finding:
    """The law that nothing is taken back which was not added before."""
    sums = signed.groupBy(*same).agg(F.sum(SIGN).alias("_net"))
    row = sums.agg(F.count(F.lit(1)).alias("all"), F.count_if(F.col("_net") < 0).alias("wrong")).first()
    assert row is not None
    return Finding("net", operator.table_name(table), row["all"], row["wrong"], "rows: none is taken back unadded")
