"""Parts of a JSON text as they were written, so that no number is rounded and no key moves on the way to the log."""

from __future__ import annotations

import json
import re

_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()


def elements(text: str) -> list[str]:
    """The texts of the elements of an array; `text` has to be a valid one."""
    texts: list[str] = []
    at = _behind(text, 0, "[")
    while text[at] != "]":
        end = _end(text, at)
        texts.append(text[at:end])
        at = _behind(text, end, ",")
    return texts


def members(text: str) -> dict[str, str]:
    """The texts of the values of an object, by name; `text` has to be a valid one."""
    texts: dict[str, str] = {}
    at = _behind(text, 0, "{")
    while text[at] != "}":
        end = _end(text, at)
        name = json.loads(text[at:end])
        at = _behind(text, end, ":")
        end = _end(text, at)
        texts[name] = text[at:end]
        at = _behind(text, end, ",")
    return texts


def _behind(text: str, at: int, sign: str) -> int:
    """Where the next value begins, or what closes: behind white space, and behind the `sign` if it comes next."""
    at = _space(text, at)
    return _space(text, at + 1) if text.startswith(sign, at) else at


def _space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return at if match is None else match.end()


def _end(text: str, at: int) -> int:
    return _DECODER.raw_decode(text, at)[1]
