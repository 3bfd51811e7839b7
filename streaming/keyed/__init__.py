"""Functions with state and timers per key, as folds over the log whose state is a table."""

from streaming.keyed.count_windows import count_window
from streaming.keyed.fold import Fold
from streaming.keyed.key import FOREVER, NEVER, Key, Output
from streaming.keyed.latest import latest
from streaming.keyed.operator import KeyedRuntime
from streaming.keyed.rows import row_class
from streaming.keyed.rules import PinnedRules, Pins, RuleHistory
from streaming.keyed.schemas import AT, WRITTEN_AT
from streaming.keyed.steps import NEWEST_INSTANT
from streaming.keyed.values import encoder, python_values, read_back

__all__ = [
    "AT",
    "FOREVER",
    "NEVER",
    "NEWEST_INSTANT",
    "WRITTEN_AT",
    "Fold",
    "Key",
    "KeyedRuntime",
    "Output",
    "PinnedRules",
    "Pins",
    "RuleHistory",
    "count_window",
    "encoder",
    "latest",
    "python_values",
    "read_back",
    "row_class",
]
