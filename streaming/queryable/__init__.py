"""Queryable state: the latest value of each key, read from the tables without Spark."""

from streaming.queryable.answer import Answer, latest_of
from streaming.queryable.keyed import StateOfKeys
from streaming.queryable.rows import plain
from streaming.queryable.windowed import LatestResults
