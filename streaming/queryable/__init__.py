"""Queryable state: the latest value of each key, read from the tables without Spark."""

from typing import TYPE_CHECKING

from streaming.base.fronts import make_front

if TYPE_CHECKING:
    from streaming.queryable.answer import latest_of
    from streaming.queryable.rows import plain

make_front(__name__)
