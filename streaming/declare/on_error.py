"""The choice of what becomes of a row for which an operator cannot be computed."""

from __future__ import annotations

from typing import Literal

from streaming.base import DeclarationError, check_choice

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


def check_pauses(kind: str, name: str, on_error: object) -> None:
    """Refuse `side` for an operator of a kind that has no side output for rows.

    Raises:
        DeclarationError: with what can be declared instead.
    """
    check_on_error(kind, name, on_error)
    if on_error == "side":
        raise DeclarationError(
            f"on_error='side' of {kind} {name!r}: only a selection and a keyed function have the side output 'failed'. "
            "Leave it out, and the operator pauses alone; or let a Selected(..., on_error='side') compute what may "
            "fail, and follow its table with Table(...); or use try_divide, try_cast and the like."
        )
