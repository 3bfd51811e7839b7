"""The rows of a person in a pipeline's logs, and what was computed of them."""

from __future__ import annotations

import json
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, MapType, StructType

from streaming.base import BATCH, DAY, ORIGIN, ErasureError
from streaming.declare import DEAD_LETTER, Operator, Pipeline, Stream
from streaming.lake import Lake
from streaming.log import REPAIRS, ever_rejected, place, read_batches, read_log, repaired, valid
from streaming.operations.batch_counts import counted_by_batch
from streaming.spark import exact_json
from streaming.tables import Split, delta

WITHOUT_ROWS = ("batches", "changes_batches", "dropped", "progress")
"""Tables beside the logs that hold no row of a stream."""

_PLACE = "_place"
_WITHOUT_SPACES = (
    *((0x0E00, 0x0FFF), (0x1000, 0x109F), (0x1780, 0x17FF)),
    *((0x2E80, 0x30FF), (0x31F0, 0x31FF), (0x3400, 0x9FFF), (0xF900, 0xFAFF), (0xFF66, 0xFF9F), (0x20000, 0x3FFFF)),
)
"""Blocks of Unicode whose scripts have no spaces between words: Thai, Lao, Tibetan, Burmese, Khmer; Chinese, Japanese.

There a name may stand between any characters.
"""
_RANGES = "".join(rf"\x{{{first:X}}}-\x{{{last:X}}}" for first, last in _WITHOUT_SPACES)
_IN_WORDS = rf"[\p{{L}}\p{{M}}\p{{N}}_&&[^{_RANGES}]]"
"""A character that goes on with a word, as a pattern of Java: letters and digits of all other scripts."""
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
        # Java's own `\w` has no letters but those of ASCII.
        return rf"(?<!{_IN_WORDS}){_quoted(self.value)}(?!{_IN_WORDS})"

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
        places = (found.span() for found in re.finditer(f"(?={re.escape(self.value)})", text))
        ends = ((start, start + len(self.value)) for start, _ in places)
        return any(not _goes_on(text[start - 1 : start]) and not _goes_on(text[end : end + 1]) for start, end in ends)

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


def _goes_on(character: str) -> bool:
    """True for one of `_IN_WORDS`; an empty text is none."""
    if not character or any(first <= ord(character) <= last for first, last in _WITHOUT_SPACES):
        return False
    return character == "_" or unicodedata.category(character)[0] in "LMN"


def _quoted(text: str) -> str:
    """A text as a pattern of Java that stands for itself."""
    return re.sub(r"(\W)", r"\\\1", text)


def _quoted_either(value: str) -> str:
    return f"({_quoted(_as_json(value))}|{_quoted(value)})"


def _as_json(text: str) -> str:
    """A text as Spark writes it in JSON, which leaves letters of all languages as they are."""
    return json.dumps(text, ensure_ascii=False)


@dataclass(frozen=True)
class InLog:
    """The rows of a person in the log of a stream: which they are, and how many of each batch.

    `by_batch` is as `Batch.erased` tells it.
    """

    stream: Stream
    split: Split
    by_batch: Mapping[int, Mapping[str, Any]]

    @property
    def valid(self) -> int:
        """Valid rows."""
        return sum(each["valid"] for each in self.by_batch.values())

    @property
    def rejected(self) -> int:
        """Rejected rows."""
        return sum(each["rejected"] for each in self.by_batch.values())


def check_known(pipeline: Pipeline, person: Person) -> None:
    """Refuse a column that no stream has.

    Raises:
        ErasureError: with those there are.
    """
    if not any(person.column in stream.columns for stream in pipeline.streams):
        there = "; ".join(f"{stream.name} has {', '.join(stream.columns)}" for stream in pipeline.streams)
        raise ErasureError(f"no stream of pipeline {pipeline.name!r} has a column {person.column!r}: {there}.")


def in_logs(spark: SparkSession, lake: Lake, pipeline: Pipeline, person: Person) -> list[InLog]:
    """The rows of a person in the logs that are there.

    Of rejected rows the payload counts too. One that was repaired goes with the row that repairs it. Where rows have a
    key, all revisions go of which any is of the person: what stands would be another one without it. Logs of changes
    come before those that they follow from, which tell what is to be taken out of them.
    """
    there = [stream for stream in reversed(pipeline.logs) if delta.exists(lake.log(stream))]
    return [_in_log(spark, lake, pipeline, stream, person) for stream in there]


def _in_log(spark: SparkSession, lake: Lake, pipeline: Pipeline, stream: Stream, person: Person) -> InLog:
    came = read_log(spark, lake, stream.revisions)
    repairs = any(batch.cause == "repair" for batch in read_batches(lake, stream.revisions))
    split = _split(came, person, repairs)
    if stream.key:
        keys = _of_keys(valid(came).where(person.matches(came, texts=())), stream)
        split = keys if stream.revised else _either(split, keys)
    return InLog(stream, split, counted_by_batch(split.taken(read_log(spark, lake, stream)), lake, pipeline, stream))


def _of_keys(revisions: DataFrame, stream: Stream) -> Split:
    """Rows of the keys of these revisions, also in tables beside the log of them."""
    columns = [f"`{name}`" for name in stream.key]
    distinct = revisions.select(*columns).distinct()
    # They are found now: the rows that tell them are taken out before others are.
    keys = F.broadcast(revisions.sparkSession.createDataFrame(distinct.collect(), distinct.schema))
    return Split(
        lambda rows: rows.join(keys, list(stream.key), "left_semi").select(*rows.columns),
        lambda rows: rows.join(keys, list(stream.key), "left_anti").select(*rows.columns),
    )


def _either(one: Split, other: Split) -> Split:
    """The rows that one of two takes."""
    return Split(
        lambda rows: one.taken(rows).unionByName(other.taken(one.kept(rows))),
        lambda rows: other.kept(one.kept(rows)),
    )


def _split(log: DataFrame, person: Person, has_repairs: bool) -> Split:
    own, mention = person.matches(log, texts=()), person.matches(log)
    is_rejected = F.col(DAY).isNull() & F.col("_rejected").isNotNull()
    of_person = F.when(is_rejected, mention).otherwise(own)
    if not has_repairs:
        return Split(lambda rows: rows.where(of_person), lambda rows: rows.where(~of_person))
    repairs = repaired(log).select(
        exact_json(place(F.col(ORIGIN)), nulls=False).alias(_PLACE),
        F.col(ORIGIN)[REPAIRS].alias(BATCH),
        own.alias("theirs"),
    )
    ownership = {(row[_PLACE], row[BATCH]): row["theirs"] for row in repairs.collect()}
    theirs = [_key(place_, batch) for (place_, batch), is_theirs in ownership.items() if is_theirs]
    others = [_key(place_, batch) for (place_, batch), is_theirs in ownership.items() if not is_theirs]
    key = F.concat_ws("@", exact_json(place(F.col(ORIGIN)), nulls=False), F.col(BATCH).cast("string"))
    is_taken: Column = F.when(is_rejected, (mention | key.isin(theirs)) & ~key.isin(others)).otherwise(own)
    return Split(lambda rows: rows.where(is_taken), lambda rows: rows.where(~is_taken))


def _key(place_: str, batch: int) -> str:
    return f"{place_}@{batch}"


def of_rows(keys: DataFrame) -> Split:
    """Rows that come from those rows of a log of which `keys` has batch and origin."""
    return Split(
        lambda rows: rows.join(F.broadcast(keys), [BATCH, ORIGIN], "left_semi"),
        lambda rows: rows.join(F.broadcast(keys), [BATCH, ORIGIN], "left_anti").select(*rows.columns),
    )


def affected(pipeline: Pipeline, streams: Iterable[str]) -> list[Operator]:
    """The operators that read one of these streams and follow from their logs alone."""
    names = {*streams}
    return [
        operator
        for operator in pipeline.operators
        if not operator.never_rebuilt and names & {stream.name for stream in operator.reads}
    ]


def unread_rejected(spark: SparkSession, lake: Lake, pipeline: Pipeline, person: Person) -> dict[str, int]:
    """The number of rejected payloads of each stream without such a field, where the value alone tells the person."""
    counts: dict[str, int] = defaultdict(int)
    for stream in (each.revisions for each in pipeline.streams):
        if delta.exists(lake.log(stream)):
            raw = F.col("_raw").cast("string")
            unread = ever_rejected(read_log(spark, lake, stream)).where(person.field_of(raw).isNull())
            counts[stream.name] = unread.count()
    return {name: count for name, count in counts.items() if count}
