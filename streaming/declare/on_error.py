"""The choice of what becomes of a row, pair or group for which an operator cannot be computed."""

from __future__ import annotations

from typing import Literal

from streaming.base import check_choice

OnError = Literal["pause", "side"]
"""`pause`: the operator pauses, alone, until its declaration is corrected. `side`: the row goes to the side output
`failed` with the error, and everything else is as if it had never come."""

ON_ERROR = ("pause", "side")


def check_on_error(kind: str, name: str, on_error: object) -> None:
    """Refuse a word that is none of the two.

    Raises:
        DeclarationError: with the two.
    """
    check_choice("on_error", on_error, f"of {kind} {name!r}", ON_ERROR)
