"""The declaration that a table records, and the facts in which one differs from another."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from deltalake import DeltaTable

from streaming.base import counted

DECLARATION = "tidemark.declaration"
"""The property of a table that records what made it."""

_NOTHING = "nothing"
_EMPTY: tuple[Any, ...] = (None, [], {}, "")
_OF_VALUES = re.compile(r"(\w+)\((.*)\)", re.DOTALL)
_LENGTH = re.compile(r"(?:(\d+) days?, )?(\d+):(\d\d):(\d\d(?:\.\d+)?)")


def recorded_declaration(table: DeltaTable) -> dict[str, Any] | None:
    """The declaration that the table records: `operator` (its name), `kind`, and `makes`; None for an older table."""
    text = table.metadata().configuration.get(DECLARATION)
    return json.loads(text) if text else None


@dataclass(frozen=True)
class FactChange:
    """A `fact` of a declaration that was `before` and is `after`, both JSON values; null or empty stands for nothing.

    `part` is the entry of a fact that has several, such as the name of an aggregate; None for the others.
    """

    fact: str
    part: str | None
    before: Any
    after: Any

    def __str__(self) -> str:
        """`aggregate 'n' was count(1) and is sum(v)`."""
        name = self.fact if self.part is None else f"{self.fact} {self.part!r}"
        return f"{name} was {_shown(self.before)} and is {_shown(self.after)}"

    @property
    def words(self) -> str:
        """The change for people: `aggregate 'n' added: count(1)`, `window Tumbling: size 1 hour → 30 minutes`."""
        name = self.fact if self.part is None else f"{self.fact} {self.part!r}"
        if self.before in _EMPTY:
            return f"{name} added: {_shown(self.after)}"
        if self.after in _EMPTY:
            return f"{name} removed, which was {_shown(self.before)}"
        if isinstance(self.before, list) and isinstance(self.after, list):
            removed = [f"- {each}" for each in self.before if each not in self.after]
            added = [f"+ {each}" for each in self.after if each not in self.before]
            if removed or added:
                return f"{name}: {', '.join([*removed, *added])}"
        before, after = _shown(self.before), _shown(self.after)
        if "\n" in before or "\n" in after:
            return "\n".join([f"{name} differs:", *_lines(before, after)])
        return _values(name, before, after) or f"{name} {_length(before)} → {_length(after)}"


def changed_facts(recorded: Mapping[str, Any], declared: Mapping[str, Any]) -> Iterator[FactChange]:
    """The facts that two fingerprints do not have in common, in their order."""
    for name in dict.fromkeys([*recorded, *declared]):
        before, after = recorded.get(name), declared.get(name)
        if isinstance(before, dict) and isinstance(after, dict):
            for part in dict.fromkeys([*before, *after]):
                if before.get(part) != after.get(part):
                    yield FactChange(name, part, before.get(part), after.get(part))
        elif before != after:
            yield FactChange(name, None, before, after)


def _shown(value: Any) -> str:
    if value is None or value == [] or value == {}:
        return _NOTHING
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _lines(before: str, after: str) -> Iterator[str]:
    """The lines that only one of two texts has, each with its sign."""
    for line in difflib.ndiff(before.splitlines(), after.splitlines()):
        if line.startswith(("- ", "+ ")):
            yield f"  {line.rstrip()}"


def _values(name: str, before: str, after: str) -> str:
    """The values in which two texts such as `Tumbling(size=1:00:00)` differ; empty where they are of two kinds."""
    one, other = _OF_VALUES.fullmatch(before), _OF_VALUES.fullmatch(after)
    if one is None or other is None or one[1] != other[1]:
        return ""
    values, others = _named_values(one[2]), _named_values(other[2])
    if values is None or others is None:
        return ""
    pairs = ((each, values.get(each, _NOTHING), others.get(each, _NOTHING)) for each in {**values, **others})
    told = [f"{each} {_length(was)} → {_length(is_now)}" for each, was, is_now in pairs if was != is_now]
    return f"{name} {one[1]}: {', '.join(told)}"


def _named_values(text: str) -> dict[str, str] | None:
    """The values of `size=1:00:00, offset=0:00:00` by name; None where it is no such text."""
    parts = re.split(r", (?=\w+=)", text) if text else []
    named = [part.partition("=") for part in parts]
    return {name: value.strip("'\"") for name, _, value in named} if all(sign for _, sign, _ in named) else None


def _length(text: str) -> str:
    """A length of time such as `1:30:00` in words; any other text as it is."""
    if (length := _LENGTH.fullmatch(text)) is None:
        return text
    units = ("day", "hour", "minute", "second")
    numbers = [float(number or 0) for number in length.groups()]
    told = [
        counted(int(number), unit) if number.is_integer() else f"{number:g} {unit}s"
        for number, unit in zip(numbers, units, strict=True)
        if number
    ]
    return " ".join(told) or "0 seconds"
