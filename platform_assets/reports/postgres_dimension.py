"""A table of Postgres as the text of a CSV file: it becomes versions of a dimension as a file does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from platform_assets.reports.dimension import Dimension
from platform_assets.reports.errors import DimensionError
from streaming.base import Column, needs

if TYPE_CHECKING:
    from psycopg import sql

_CONNECTS_WITHIN = 10
_INSTANT = """to_char({} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')"""


def copied(dimension: Dimension) -> bytes:
    """The declared columns of all rows, in one order and of one instant.

    Raises:
        DimensionError: the server is away, or the table or a column is not there or may not be read.
        MissingExtra: the client of Postgres is not installed.
    """
    needs("psycopg", f"dimension {dimension.name!r}")
    # Only who has a dimension in Postgres loads the client.
    import psycopg
    from psycopg import sql

    columns = sql.SQL(", ").join(map(_as_text, dimension.declared))
    order = sql.SQL(", ").join(map(sql.Literal, range(1, len(dimension.declared) + 1)))
    query = sql.SQL("copy (select {} from {} order by {}) to stdout (format csv, header)").format(
        columns, sql.Identifier(*dimension.path.split(".")), order
    )
    try:
        with psycopg.connect(
            dimension.connection or "", connect_timeout=_CONNECTS_WITHIN, client_encoding="utf8"
        ) as connection:
            # A database may have settings of its own for how times are told.
            connection.execute("set timezone to 'UTC'; set datestyle to 'ISO'; set extra_float_digits to 1")
            with connection.cursor() as cursor, cursor.copy(query) as rows:
                return b"".join(rows)
    except psycopg.Error as error:
        reason = (str(error.diag.message_primary or error).strip().splitlines() or [type(error).__name__])[0]
        raise DimensionError(
            f"dimension {dimension.name!r} cannot be read from the table {dimension.path!r} of Postgres: {reason}.",
            "Correct the declaration, or let its user read the table; nothing is published until then.",
            table=dimension.path,
        ) from error


def _as_text(column: Column) -> sql.Composed:
    from psycopg import sql

    name = sql.Identifier(column.name)
    text = sql.SQL(_INSTANT if column.type == "timestamp" else "{}::text").format(name)
    return sql.SQL("{} as {}").format(text, name)
