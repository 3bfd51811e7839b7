"""Regular expressions of Java that RE2 finds in the same texts, and how RE2 writes them."""

from __future__ import annotations

import string
from dataclasses import dataclass

_LINE_ENDS = r"\n\r\x{85}\x{2028}\x{2029}"
_CLASSES = {
    "d": "0-9",
    "w": "0-9A-Za-z_",
    "s": r"\t\n\x{b}\f\r ",
}
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_SPECIAL = set("\\[](){}.*+?^$|")
_MOST_REPEATED = 100
_NO_CHARACTERS = range(0xD800, 0xE000)
"""Code points that are no characters, but that Java sees within characters of two."""


@dataclass(frozen=True)
class Re2:
    """A regular expression for RE2, and one of the texts in which Java may find another thing, if there are such."""

    pattern: str
    odd: str | None


class NotTheSameError(ValueError):
    """A regular expression that may mean something else to RE2, or that is none."""


def re2_of(pattern: str) -> Re2:
    """The expression by which RE2 finds what Java finds.

    Raises:
        NotTheSameError: this one is not known to have such an expression.
    """
    return _Reader(pattern).whole()


def in_re2(text: str) -> str:
    """The regular expression for RE2 of a text as it is."""
    return "".join(map(_character, text))


def _character(character: str) -> str:
    if character.isascii() and character.isalnum():
        return character
    code = ord(character)
    if code in _NO_CHARACTERS:
        raise NotTheSameError("a part of a character")
    return f"\\x{{{code:x}}}"


class _Reader:
    """Reads one expression from its start to its end."""

    def __init__(self, pattern: str) -> None:
        self._ignores_case = pattern.startswith("(?i)")
        self._text = pattern.removeprefix("(?i)")
        self._at = 0
        self._odd = set[str]()

    def whole(self) -> Re2:
        pattern, _ = self._alternatives()
        if self._at < len(self._text):
            raise NotTheSameError(f"`{self._text[self._at]}` without its beginning")
        return Re2(pattern, "|".join(sorted(self._odd)) or None)

    def _next(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self) -> str:
        character = self._next()
        if not character:
            raise NotTheSameError("an end in the middle of something")
        self._at += 1
        return character

    def _takes(self, expected: str) -> bool:
        if self._text.startswith(expected, self._at):
            self._at += len(expected)
            return True
        return False

    def _alternatives(self) -> tuple[str, bool]:
        """Everything that may stand here, and True if it may be nothing."""
        branches = [self._sequence()]
        while self._takes("|"):
            branches.append(self._sequence())
        return "|".join(pattern for pattern, _ in branches), any(empty for _, empty in branches)

    def _sequence(self) -> tuple[str, bool]:
        parts, may_be_empty = [], True
        while self._next() not in ("", "|", ")"):
            pattern, empty = self._repeated()
            parts.append(pattern)
            may_be_empty &= empty
        return "".join(parts), may_be_empty

    def _repeated(self) -> tuple[str, bool]:
        pattern, empty, repeatable = self._atom()
        times = self._times()
        if times is None:
            return pattern, empty
        if not repeatable or empty:
            raise NotTheSameError("a repetition of what may be nothing")
        least, most = times
        count = "" if most is None else str(most)
        repetition = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get(times, f"{{{least},{count}}}")
        return f"(?:{pattern}){repetition}", least == 0

    def _times(self) -> tuple[int, int | None] | None:
        """The least and the greatest number of times of what stands before."""
        times: tuple[int, int | None]
        match self._next():
            case "*":
                times = 0, None
            case "+":
                times = 1, None
            case "?":
                times = 0, 1
            case "{":
                return self._counted()
            case _:
                return None
        self._at += 1
        return self._not_possessive(times)

    def _counted(self) -> tuple[int, int | None]:
        inside, closed, _ = self._text[self._at + 1 :].partition("}")
        least, comma, most = inside.partition(",")
        numbers = [least, most] if most else [least]
        if not closed or not all(each.isascii() and each.isdecimal() for each in numbers):
            raise NotTheSameError("a count that is none")
        if any(len(each) > 3 or int(each) > _MOST_REPEATED for each in numbers):
            raise NotTheSameError("a great count")
        self._at += len(inside) + 2
        first = int(least)
        last = first if not comma else int(most) if most else None
        if last is not None and (last < first or last == 0):
            raise NotTheSameError("a count of nothing")
        return self._not_possessive((first, last))

    def _not_possessive(self, times: tuple[int, int | None]) -> tuple[int, int | None]:
        # Whether something is found does not depend on how much of it is tried first.
        self._takes("?")
        if self._next() in ("*", "+", "?", "{") and self._next():
            raise NotTheSameError("a repetition of a repetition")
        return times

    def _atom(self) -> tuple[str, bool, bool]:
        """A pattern, True if it may be nothing, and True if it may be repeated."""
        character = self._take()
        match character:
            case "(":
                if self._next() == "?" and not self._takes("?:"):
                    raise NotTheSameError("a group of a special kind")
                pattern, empty = self._alternatives()
                if not self._takes(")"):
                    raise NotTheSameError("a group without end")
                return f"(?:{pattern})", empty, True
            case "[":
                return self._class(), False, True
            case ".":
                return f"[^{_LINE_ENDS}]", False, True
            case "^":
                return r"\A", True, False
            case "$":
                # Java finds it before a line end at the end of a text, too.
                self._odd.add(rf"[{_LINE_ENDS}]\z")
                return r"\z", True, False
            case "\\":
                return self._escaped()
            case _ if character in _SPECIAL - {"]", "}"}:
                raise NotTheSameError(f"`{character}` at this place")
        return self._literal(character), False, True

    def _literal(self, character: str) -> str:
        if self._ignores_case and character in string.ascii_letters:
            return f"[{character.lower()}{character.upper()}]"
        return _character(character)

    def _escaped(self) -> tuple[str, bool, bool]:
        character = self._take()
        if character in _CLASSES:
            return f"[{_CLASSES[character]}]", False, True
        if character.lower() in _CLASSES:
            return f"[^{_CLASSES[character.lower()]}]", False, True
        if character in "bAz":
            if character == "b":
                # Which other characters are those of words, depends on the version of Java.
                self._odd.add(r"[^\x{0}-\x{7f}]")
            return f"\\{character}", True, False
        return self._literal(self._plain(character)), False, True

    def _plain(self, character: str) -> str:
        """The character that is meant by one behind a backslash."""
        if character in _CONTROLS:
            return _CONTROLS[character]
        if character in ("x", "u"):
            digits = self._text[self._at : self._at + (2 if character == "x" else 4)]
            if len(digits) != (2 if character == "x" else 4) or not set(digits) <= set(string.hexdigits):
                raise NotTheSameError("a character by its number in another form")
            self._at += len(digits)
            return chr(int(digits, 16))
        if character.isascii() and not character.isalnum():
            return character
        raise NotTheSameError(f"`\\{character}`")

    def _class(self) -> str:
        negated = self._takes("^")
        ranges: list[tuple[int, int]] = []
        named = []
        if self._next() in ("]", "^"):
            raise NotTheSameError("a class that begins with what may end it")
        while not self._takes("]"):
            first = self._of_class()
            if len(first) > 1:
                named.append(first)
                if self._next() == "-" and self._text[self._at + 1 : self._at + 2] != "]":
                    raise NotTheSameError("a range of classes")
                continue
            last = first
            if self._next() == "-" and self._text[self._at + 1 : self._at + 2] != "]":
                self._at += 1
                last = self._of_class()
                if len(last) > 1 or last < first:
                    raise NotTheSameError("a range of this kind")
                if self._next() == "-" and self._text[self._at + 1 : self._at + 2] != "]":
                    raise NotTheSameError("a range of ranges")
            ranges.append((ord(first), ord(last)))
        if any(first < _NO_CHARACTERS.stop and last >= _NO_CHARACTERS.start for first, last in ranges):
            raise NotTheSameError("a class with parts of characters")
        if self._ignores_case:
            ranges += [other for each in ranges for other in _other_case(*each)]
        inside = "".join(f"{_character(chr(first))}-{_character(chr(last))}" for first, last in ranges)
        return f"[{'^' * negated}{''.join(named)}{inside}]"

    def _of_class(self) -> str:
        """A character of a class, or more of them as RE2 writes them."""
        character = self._take()
        if character == "[" or self._text.startswith("&&", self._at - 1):
            raise NotTheSameError("a class of classes")
        if character == "\\":
            character = self._take()
            return _CLASSES[character] if character in _CLASSES else self._plain(character)
        return character


def _other_case(first: int, last: int) -> list[tuple[int, int]]:
    """The ranges of the same letters of ASCII in the other case."""
    others = []
    for start, end, step in ((ord("a"), ord("z"), -32), (ord("A"), ord("Z"), 32)):
        low, high = max(first, start), min(last, end)
        if low <= high:
            others.append((low + step, high + step))
    return others
