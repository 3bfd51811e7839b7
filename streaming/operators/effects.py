"""The effect that rows to come would have on what operators have made, told before anybody writes these rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import cached_property
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import BATCH, DAY, SIGN, counted
from streaming.declare import Operator, Stream
from streaming.lake import Lake
from streaming.log import read_log, valid
from streaming.tables import delta

TAKEN_BACK, ADDED_ROWS, FROM, UNTIL = "_taken_back", "_added", "_from", "_until"
"""Columns of the parts of an effect, beside those of a key: how many are taken back and added; from when until when."""
MOST_PARTS = 20
"""The parts of an effect that are named, such as its first keys; the numbers are of all."""


@dataclass(frozen=True)
class Coming:
    """The valid rows of the next batch of a stream's log, as long as nobody has written them.

    `rows` have the columns of the log that operators follow, with their place and stamp: the `batch`, and the
    `watermark` that is in force. `log` are the rows that are there before. `revisions` and `came` are the same two of
    the log of what came, which is another one where the stream has a key. `count`: how many rows come.
    """

    stream: Stream
    log: DataFrame
    rows: DataFrame
    came: DataFrame
    revisions: DataFrame
    batch: int
    watermark: datetime | None
    count: int

    @cached_property
    def after(self) -> DataFrame:
        """The rows of the log once these have come."""
        return self.log.unionByName(self.rows, allowMissingColumns=True)

    def logs(self, spark: SparkSession, lake: Lake, streams: Sequence[Stream]) -> dict[str, DataFrame] | None:
        """The valid rows of the logs of `streams` before these come, by stream; None while one has no log."""
        if not all(each == self.stream or delta.exists(lake.log(each)) for each in streams):
            return None
        return {each.name: valid(self.log if each == self.stream else read_log(spark, lake, each)) for each in streams}


@dataclass(frozen=True)
class ChangedWindow:
    """One window of a key that rows to come would change.

    `before` and `after` are its values over all valid rows without and with the ones that come, lists where a
    full-window function, a window join or a co-group gives many rows; `before` is None for a window that would be new,
    `after` for one that would have no row, and for a session that would become part of another.
    """

    key: tuple[Any, ...]
    start: datetime
    end: datetime
    rows_added: int
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None


@dataclass(frozen=True)
class Effect:
    """The effect that rows to come would have on one `table` of an operator: a `summary` in words, and numbers.

    `numbers` are by what they count: `taken_back` and `added` results, `keys`, `sessions`, `windows`, rows that the
    function is called for (`calls`), results that are `standing` now where it is open how many of them change. `parts`
    tell where, by `_day` or by key, the first of them, and `more` how many there are besides; of an operator over
    windows `windows` do, all of them. `due` are the days that would wait for a correction, since first results of them
    are published or about to be; None where nothing ever waits for one.
    """

    table: str
    summary: str
    numbers: Mapping[str, int] = field(default_factory=dict)
    parts: tuple[Mapping[str, Any], ...] = ()
    more: int = 0
    windows: tuple[ChangedWindow, ...] | None = None
    due: tuple[date, ...] | None = None


def effect_of_rows(operator: Operator, suffix: str, noun: str, signed: DataFrame) -> Effect:
    """The effect of the `signed` rows that a table of rows, each called `noun`, would get, by day."""
    days = signed.groupBy(DAY).agg(*counted_by_sign()).orderBy(DAY).collect()
    sums = {name: sum(row[name] for row in days) for name in (TAKEN_BACK, ADDED_ROWS)}
    told = [name for name, number in sums.items() if number] or [TAKEN_BACK]
    return Effect(
        operator.table_name(suffix),
        said_by_sign(sums, noun),
        {"taken_back": sums[TAKEN_BACK], "added": sums[ADDED_ROWS]},
        tuple({DAY: row[DAY], **{name: row[name] for name in told}} for row in days),
    )


def said_by_sign(sums: Mapping[str, int], noun: str) -> str:
    """The words for how many things, each called `noun`, would be TAKEN_BACK, and how many ADDED_ROWS."""
    said = [f"{counted(number, noun)} would be {words_of(name)}" for name, number in sums.items() if number]
    return " and ".join(said) or f"no {noun} would be {words_of(TAKEN_BACK)}"


def counted_by_sign() -> tuple[Column, Column]:
    """The number of signed rows that are taken back, and of those that are added, as aggregates."""
    sign = F.col(SIGN)
    return F.count_if(sign < 0).alias(TAKEN_BACK), F.count_if(sign > 0).alias(ADDED_ROWS)


def words_of(name: str) -> str:
    """A column of `parts` as people read it: one with a name of the platform's own, or one of a key."""
    return name.removeprefix("_").replace("_", " ") if name.startswith("_") else name


def at_batch(rows: DataFrame, batch: int, watermark: datetime | None) -> DataFrame:
    """The rows as those of a batch that is not written yet."""
    stamps = {"_watermark": F.lit(watermark).cast("timestamp"), BATCH: F.lit(batch).cast("bigint")}
    return rows.withColumns(stamps)
