"""Debezium's envelopes: all that they say in every encoding, and the contract of one that Spark opens."""

from __future__ import annotations

from abc import ABC, abstractmethod

from pyspark.sql import DataFrame

from streaming.base import sql
from streaming.formats.leaves import FIRST_MICRO, LAST_MICRO

OP, AT, SOURCE, BEFORE, AFTER = "_op", "_at", "_source", "_before", "_after"
"""Columns of an opened envelope: the operation, a time as text, the source in JSON, and the rows as they came."""

OPERATIONS = {"c": "created", "r": "read by a snapshot", "u": "updated", "d": "deleted"}
FIRST_MILLI, LAST_MILLI = FIRST_MICRO // 1_000, LAST_MICRO // 1_000
"""The first and the last instant there is, in milliseconds since 1970."""

CHANGE_OP, CHANGE_AT, CHANGE_SOURCE = "change_op", "change_at", "change_source"
"""Columns beside those of the row: the kind of a change, when it was committed, and where the database has it."""

CHANGE_UNAVAILABLE = "change_unavailable"
"""The columns of which the database did not send the value, as the change left it as it was."""

ADDED = (
    sql.Column(CHANGE_OP, "string", required=False, comment="c, r (snapshot), u or d; null of a tombstone"),
    sql.Column(CHANGE_AT, "timestamp", required=False, comment="When the database committed it."),
    sql.Column(CHANGE_SOURCE, "string", required=False, comment="Where the database has it, the JSON of `source`."),
    sql.Column(CHANGE_UNAVAILABLE, "array<string>", required=False, comment="Columns whose value was not sent."),
)

PLACEHOLDER = "__debezium_unavailable_value"
"""The text that connectors write for a large value that a change left as it was, which the database does not log."""

UNAVAILABLE = (
    "is unavailable: the database did not log the value, as the change left it as it was. Log whole rows, in Postgres "
    "by REPLICA IDENTITY FULL, or declare the column without not null"
)
"""The words of a reason against a column that must have a value."""


def no_operation(operation: object) -> str:
    """The reason against an envelope whose operation is no change of a row."""
    return f"op {operation} is no change of a row ({', '.join(OPERATIONS)})"


class Envelope(ABC):
    """The reader of the envelopes of one encoding."""

    @property
    @abstractmethod
    def row(self) -> tuple[sql.Column, ...]:
        """The columns of the row inside."""

    @abstractmethod
    def opened(self, raw: DataFrame) -> DataFrame:
        """`raw` with the columns of an opened envelope and `_unreadable`; these are null where there is no payload."""

    @abstractmethod
    def parsed(self, judged: DataFrame) -> DataFrame:
        """With `_row`, the values of `_before` where `_deleted` and of `_after` otherwise, `_row_wrong` and `_unknown`.

        A required value that is missing is a reason in `_row_wrong`, but of a row that was deleted.
        """
