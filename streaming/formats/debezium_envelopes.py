"""The contract of Debezium's envelopes: opened, they have the same columns in every encoding."""

from __future__ import annotations

from abc import ABC, abstractmethod

from pyspark.sql import DataFrame

from streaming.base import sql

OP, AT, SOURCE, BEFORE, AFTER = "_op", "_at", "_source", "_before", "_after"
"""Columns of an opened envelope: the operation, a time as text, the source in JSON, and the rows as they came."""


class Envelope(ABC):
    """How the envelopes of one encoding are read."""

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

        No value is required there. `_unreadable` may have become a reason against the row as a whole.
        """
