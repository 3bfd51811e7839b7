"""Queryable state: the latest value of each key, read from the tables without Spark."""

from typing import TYPE_CHECKING

from streaming.base.fronts import make_front

if TYPE_CHECKING:
    from streaming.queryable.answer import Answer, latest_of
    from streaming.queryable.keyed import StateOfKeys
    from streaming.queryable.rows import plain
    from streaming.queryable.windowed import LatestResults

make_front(__name__)
