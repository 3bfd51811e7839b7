"""Connections to Postgres as declarations name them."""

from __future__ import annotations

from streaming.base.errors import DeclarationError
from streaming.base.extras import needs


def check_connection(of: str, connection: str) -> None:
    """Refuse a libpq connection string that cannot be read, or has a password.

    Raises:
        DeclarationError: with where the password belongs.
        MissingExtra: the client of Postgres is not installed.
    """
    needs("psycopg", of)
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    try:
        given = conninfo_to_dict(connection)
    except psycopg.ProgrammingError as error:
        # Neither the text nor psycopg's message, which may quote a password.
        raise DeclarationError(
            f"the connection of {of} cannot be read; write a libpq connection string, such as 'host=db.example "
            "dbname=shop user=etl'."
        ) from error.with_traceback(None)
    if given.get("password"):
        raise DeclarationError(
            f"the connection of {of} has a password, which would be in the code and in what is shown of it; take it "
            "out, and set PGPASSWORD, PGPASSFILE or a service file."
        )
