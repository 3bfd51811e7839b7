"""Derived streams without state: rows of logs that are projected, filtered, exploded, split and brought together."""

from streaming.selected.frame import AT, BATCH
from streaming.selected.operator import SelectedRuntime

__all__ = ["AT", "BATCH", "SelectedRuntime"]
