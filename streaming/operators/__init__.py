"""The contract of what runs an operator, and how it is found."""

from streaming.operators.declaration import check_declaration, create_table, recorded_declaration
from streaming.operators.finding import Finding
from streaming.operators.runtime import (
    LogAtVersion,
    OperatorRuntime,
    PendingDay,
    Step,
    Written,
    runtime_of,
)
from streaming.operators.slices import slices
from streaming.operators.state import clean_state

__all__ = [
    "Finding",
    "LogAtVersion",
    "OperatorRuntime",
    "PendingDay",
    "Step",
    "Written",
    "check_declaration",
    "clean_state",
    "create_table",
    "recorded_declaration",
    "runtime_of",
    "slices",
]
