"""What Postgres says when it refuses a batch, and what to do then."""

from __future__ import annotations

import psycopg
from psycopg import errors

_AWAY = ("08", "25", "28", "3D", "40", "53", "57", "58", "F0", "55P03", "55006", "XX001", "XX002", "HV00N")
"""Beginnings of the codes that are about the connection, the server or the transaction (PostgreSQL: Error Codes).

Everything else may be about a row: values and constraints, but also what a trigger raises, the limits of an index, and
the policies of a table.
"""
_OF_A_STATEMENT = ("42", "3F")


def is_of_server(error: psycopg.Error) -> bool:
    """Whether the batch failed for what the server is or does, and not for its rows."""
    return error.sqlstate is None or error.sqlstate.startswith(_AWAY)


def is_of_statement(error: psycopg.Error) -> bool:
    """Whether a statement within a function of the server's, such as a trigger's, cannot be carried out at all.

    What a function raises itself is about the row that it was called for.
    """
    within = error.diag.context is not None and error.diag.source_function != "exec_stmt_raise"
    return within and (error.sqlstate or "").startswith(_OF_A_STATEMENT)


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
        case _ if is_of_statement(error):
            return "Correct the function or trigger of the table that says so; the batch is sent again by itself."
        case errors.UndefinedColumn() | errors.UndefinedTable() | errors.DatatypeMismatch():
            return "Give the table the columns and types that are delivered; the batch is sent again by itself."
        case errors.InvalidColumnReference():
            return "Give the table a unique index on the key; the batch is sent again by itself."
    return "The batch is sent again by itself."
