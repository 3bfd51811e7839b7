"""Values of another type than a declaration asks for: refused with what was given and what to write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streaming.base.errors import UnknownChoice, WrongType


def check_type(what: str, value: object, kind: type | tuple[type, ...], advice: str) -> None:
    """Refuse a `value` of `what` that is no `kind`; `advice` says what to write.

    Raises:
        WrongType: with the value.
    """
    if not isinstance(value, kind):
        raise WrongType(f"{what} is {value!r}, a {type(value).__name__}", f"write {advice}.", value=value)


def check_tuple(what: str, value: object, kind: type, advice: str) -> None:
    """Refuse a `value` of `what` that is no tuple, or has an entry that is no `kind`; `advice` says what to write.

    Raises:
        WrongType: with the value.
    """
    check_type(what, value, tuple, advice)
    for entry in value if isinstance(value, tuple) else ():
        check_type(f"an entry of {what}", entry, kind, advice)


def check_mapping(what: str, value: object, kind: type, advice: str) -> None:
    """Refuse a `value` of `what` that is no mapping from text to `kind`; `advice` says what to write.

    Raises:
        WrongType: with the value.
    """
    check_type(what, value, Mapping, advice)
    for name, entry in value.items() if isinstance(value, Mapping) else ():
        check_type(f"a name in {what}", name, str, advice)
        check_type(f"{name!r} in {what}", entry, kind, advice)


def check_choice(what: str, value: object, of: str, valid: Sequence[str], otherwise: str = "") -> None:
    """Refuse a `value` of the argument `what` that is none of the `valid` ones; `otherwise` says what to do without it.

    Raises:
        UnknownChoice: with those there are.
    """
    if value not in valid:
        advice = f"use one of: {', '.join(map(repr, valid))}.{f' {otherwise}' if otherwise else ''}"
        raise UnknownChoice(f"{what}={value!r} {of} is unknown", advice, field=what, value=value, choices=tuple(valid))


def check_number(what: str, value: object, kind: str, least: int = 1) -> None:
    """Refuse a `value` that is no whole number from `least` on; `what` has the value in it, `kind` says what it is of.

    Raises:
        WrongType: with the least ones.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise WrongType(f"{what} is no {kind}", f"use {least}, {least + 1}, {least + 2}, ...", value=value)
