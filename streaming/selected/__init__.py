"""Derived streams without state: rows of logs that are projected, filtered, exploded, split and brought together."""

from streaming.selected.operator import SelectedRuntime
