"""Which names a declaration may carry: they become table, folder and column names."""

from __future__ import annotations

import re
from datetime import datetime

from streaming.base.errors import DeclarationError

_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Characters that a terminal obeys and does not show: to move the cursor, change colours, write from right to left."""


def check_name(what: str, name: str) -> None:
    """Refuse a `name` that cannot be a folder and a column.

    Raises:
        DeclarationError: not lower-case letters, digits and underscores, beginning with a letter.
    """
    if not isinstance(name, str) or not can_be_name(name):
        raise DeclarationError(
            f"{name!r} cannot name a {what}; use lower-case letters, digits and '_', beginning with a letter."
        )


def can_be_name(name: str) -> bool:
    """True if the name can be a folder and a column: it has no character that a path, SQL or a shell reads."""
    return re.fullmatch(r"[a-z][a-z0-9_]*", name) is not None


def check_column_name(name: str) -> None:
    """Refuse a user's column that could collide with the log's own, or that Spark would read as part of another one.

    Raises:
        DeclarationError: the name begins with `_`, is empty, or has a dot, a backtick or a control character.
    """
    check_not_reserved(name)
    if "`" in name or not name.isprintable():
        raise DeclarationError(
            f"column {name!r} is not allowed: SQL quotes names by backticks, and terminals obey control characters. "
            "Rename it, with letters, digits and '_'."
        )
    if "." in name:
        raise DeclarationError(
            f"column {name!r} is not allowed: Spark reads what stands behind a dot as a field of a struct. Rename it, "
            f"such as {name.replace('.', '_')!r}."
        )


def check_not_reserved(name: str) -> None:
    """Refuse the name of a column, in a table or a target, that could be one of the log's own.

    Raises:
        DeclarationError: the name begins with `_` or is empty.
    """
    if not name or name.startswith("_"):
        raise DeclarationError(
            f"column {name!r} is not allowed: names beginning with '_' belong to the event log. Rename it."
        )


def counted(number: int, one: str, many: str | None = None) -> str:
    """`1 row`, `2,000 rows`; `many` is the plural where it is not `one` with an `s`."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def told(instant: datetime | None) -> str:
    """`2026-01-05 10:00:00`, or `none`."""
    return "none" if instant is None else f"{instant:%Y-%m-%d %H:%M:%S}"


def shown(text: str) -> str:
    """A text from outside as a terminal may show it: what terminals obey is written as in Python, such as `\\x1b`."""
    return _OBEYED.sub(lambda match: match[0].encode("unicode_escape").decode(), text)
