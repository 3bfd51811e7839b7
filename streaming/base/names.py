"""Which names a declaration may carry: they become table, folder and column names."""

from __future__ import annotations

import re

from streaming.base.errors import BadName


def check_name(what: str, name: str) -> None:
    """Refuse a `name` that cannot be a folder and a column.

    Raises:
        BadName: not lower-case letters, digits and underscores, beginning with a letter.
    """
    if not isinstance(name, str) or not can_be_name(name):
        raise BadName(
            f"{name!r} cannot name a {what}",
            "use lower-case letters, digits and '_', beginning with a letter.",
            field="name",
            value=name,
        )


def can_be_name(name: str) -> bool:
    """True if the name can be a folder and a column: it has no character that a path, SQL or a shell reads."""
    return re.fullmatch(r"[a-z][a-z0-9_]*", name) is not None


def check_column_name(name: str) -> None:
    """Refuse a user's column that could collide with the log's own, or that Spark would read as part of another one.

    Raises:
        BadName: the name begins with `_`, is empty, or has a dot, a backtick or a control character.
    """
    check_not_reserved(name)
    if "`" in name or not name.isprintable():
        raise BadName(
            f"column {name!r} is not allowed: SQL quotes names by backticks, and terminals obey control characters.",
            "Rename it, with letters, digits and '_'.",
            column=name,
        )
    if "." in name:
        raise BadName(
            f"column {name!r} is not allowed: Spark reads what stands behind a dot as a field of a struct.",
            f"Rename it, such as {name.replace('.', '_')!r}.",
            column=name,
        )


def check_not_reserved(name: str) -> None:
    """Refuse the name of a column, in a table or a target, that could be one of the log's own.

    Raises:
        BadName: the name begins with `_` or is empty.
    """
    if not name or name.startswith("_"):
        raise BadName(
            f"column {name!r} is not allowed: names beginning with '_' belong to the event log.",
            "Rename it.",
            column=name,
        )
