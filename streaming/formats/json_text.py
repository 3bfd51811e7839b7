"""A payload to one JSON object, as strictly as the grammar, and values of JSON as text again, digit by digit."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

from streaming.base import shown
from streaming.formats.decoder import Unreadable
from streaming.formats.leaves import MINUS_ZERO, Number

DEEPEST = 500
"""Levels of objects and arrays in a payload, far more than anybody sends: Python's parser needs its stack for each."""

SHOWN = 50
"""Characters of a value that a reason shows."""

_NO_OBJECT = "the payload is not one JSON object"
_BYTE_ORDER_MARK, _WHITE_SPACE = "\ufeff", " \t\n\r"
# Possessive, as a hundred bytes of stack were needed for each character of a text otherwise.
_BRACKETS = re.compile(r'"(?:[^"\\]++|\\.)*+"|([\[{])|([\]}])', re.DOTALL)
_LINE_ENDS = str.maketrans({"\n": "\\n", "\r": "\\r", "\t": "\\t"})
_MANY_DIGITS = 300


class _Twice(ValueError):
    """A name stands twice in an object."""


def object_of(payload: bytes) -> dict[str, Any]:
    """The one JSON object that a payload is; numbers that are no `int` of few digits are `Number`, as they are written.

    A byte order mark in front is skipped, as some editors write one.

    Raises:
        Unreadable: it is no UTF-8; anything but white space stands before or behind the object; it has a name twice in
            one object, half a character in a name, or more levels than `DEEPEST`.
    """
    try:
        text = str(payload, "utf-8")
    except UnicodeDecodeError:
        raise Unreadable("the payload is not UTF-8") from None
    text = text.removeprefix(_BYTE_ORDER_MARK).strip(_WHITE_SPACE)
    # Nearly every payload is so short, or has so few brackets, that it need not be looked at.
    if len(text) > DEEPEST and text.count("[") + text.count("{") > DEEPEST and _is_too_deep(text):
        raise Unreadable(f"{_NO_OBJECT} of at most {DEEPEST} levels")
    value = _parsed(text)
    if type(value) is not dict:
        raise Unreadable(_NO_OBJECT)
    if "\\" in text and ("\\ud" in text or "\\uD" in text):
        _check_names(value)
    return value


def text_of(value: Any) -> str:
    """A value as JSON, without white space and with each number as it was written."""
    return "".join(_pieces(value))


def shown_value(value: Any) -> str:
    """A value as JSON for a reason: its first characters, none of which a terminal obeys."""
    text = ""
    for piece in _pieces(value, SHOWN):
        text += piece
        if len(text) > SHOWN:
            break
    return cut(text)


def cut(text: str) -> str:
    """The first characters of a text from outside, as a reason shows them."""
    printable = shown(text[:SHOWN].translate(_LINE_ENDS)).encode("utf-8", "backslashreplace").decode()
    return f"{printable}..." if len(text) > SHOWN else printable


def _pieces(value: Any, longest: int | None = None) -> Iterator[str]:
    """The value bit by bit; of names and texts `longest` characters."""
    # A generator within a generator for each level would hand every bit through all of them.
    open_: list[tuple[Iterator[tuple[str, Any]], str]] = [(iter([("", value)]), "")]
    while open_:
        members, end = open_[-1]
        for before, each in members:
            if type(each) is dict:
                yield f"{before}{{"
                open_.append((_members(each, longest), "}"))
                break
            if type(each) is list:
                yield f"{before}["
                open_.append((_elements(each), "]"))
                break
            yield before + _plain(each, longest)
        else:
            open_.pop()
            yield end


def _members(value: Mapping[str, Any], longest: int | None) -> Iterator[tuple[str, Any]]:
    """The values of an object, each with what stands before it."""
    for place, (name, each) in enumerate(value.items()):
        yield f"{',' if place else ''}{json.dumps(name[:longest], ensure_ascii=False)}:", each


def _elements(value: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """The elements of an array, each with what stands before it."""
    for place, each in enumerate(value):
        yield "," if place else "", each


def _plain(value: Any, longest: int | None) -> str:
    if type(value) is Number:
        return str(value[:longest])
    return json.dumps(value[:longest] if type(value) is str else value, ensure_ascii=False)


def _parsed(text: str) -> Any:
    try:
        value, end = _DECODER.raw_decode(text)
    except _Twice as error:
        raise Unreadable(str(error)) from None
    except RecursionError:
        raise Unreadable(f"{_NO_OBJECT} of at most {DEEPEST} levels") from None
    except ValueError:
        raise Unreadable(_NO_OBJECT) from None
    if end != len(text):
        raise Unreadable(_NO_OBJECT)
    return value


def _named_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        # Which of them is meant nobody can tell, and every reader takes another one.
        (twice, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise _Twice(f"{_NO_OBJECT}: it has the field {shown_value(twice)} more than once")
    return members


def _integer(digits: str) -> int | Number:
    # Python refuses to make an integer of thousands of digits, which takes it minutes, and has none of minus zero.
    return int(digits) if len(digits) <= _MANY_DIGITS and digits != MINUS_ZERO else Number(digits)


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_named_once, parse_float=Number, parse_int=_integer, parse_constant=_no_number
)


def _is_too_deep(text: str) -> bool:
    depth = 0
    for match in _BRACKETS.finditer(text):
        depth += 1 if match[1] else -1 if match[2] else 0
        if depth > DEEPEST:
            return True
    return False


def _check_names(value: Any) -> None:
    """Refuse half a character in a name, which no column and no count could have."""
    if type(value) is dict:
        try:
            "".join(value).encode()
        except UnicodeEncodeError:
            raise Unreadable(f"{_NO_OBJECT}: it has half a character in the name of a field") from None
        value = list(value.values())
    if type(value) is list:
        for each in value:
            _check_names(each)
