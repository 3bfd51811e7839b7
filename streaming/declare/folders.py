"""Names that become folders of the lake, beside those that the lake keeps for itself."""

from __future__ import annotations

from streaming.base import DeclarationError, check_name

_KEPT = ("landing", "reports", "quality")


def check_folder(what: str, name: str) -> None:
    """Refuse a `name` that cannot be a folder in the root of the lake.

    Raises:
        DeclarationError: it is no name, or the lake keeps that folder for itself.
    """
    check_name(what, name)
    if name in _KEPT:
        raise DeclarationError(
            f"{name!r} cannot name a {what}: the lake keeps {', '.join(_KEPT)} for itself. Rename it."
        )
