"""What Postgres says when it refuses a batch, and what to do then."""

from __future__ import annotations

import psycopg
from psycopg import errors


def first_line(error: psycopg.Error) -> str:
    """What the server says, in one sentence."""
    text = str(error.diag.message_primary or error).strip()
    return (text.splitlines() or [type(error).__name__])[0].rstrip(".") + "."


def advice(error: psycopg.Error) -> str:
    """What to do next."""
    match error:
        case errors.InsufficientPrivilege():
            return "Grant the right; the batch is sent again by itself."
        case errors.ObjectNotInPrerequisiteState() | errors.OutOfMemory() if "prepared transactions" in str(error):
            return (
                "Set max_prepared_transactions of the server to at least the number of deliveries that commit in two "
                "phases there, and start it again; the batch is sent again by itself."
            )
        case errors.DiskFull() | errors.OutOfMemory():
            return "Make room on the server; the batch is sent again by itself."
        case errors.UndefinedColumn() | errors.UndefinedTable() | errors.DatatypeMismatch():
            return "Give the table the columns and types that are delivered; the batch is sent again by itself."
        case errors.InvalidColumnReference():
            return "Give the table a unique index on the key; the batch is sent again by itself."
    return "The batch is sent again by itself."
