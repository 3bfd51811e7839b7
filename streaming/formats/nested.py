"""Parsed JSON to the values of declared columns: every leaf is judged as strictly as a column at the top is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from streaming.base import sql
from streaming.formats.decoder import Row
from streaming.formats.json_text import shown_value
from streaming.formats.leaves import Leaf, Leaves, Refused, is_required, kind_of, leaf_of

_Type = exp.DataType.Type

Read = Callable[[Any, list[str]], Any]
"""Makes of a parsed value what Arrow takes, and adds the paths of undeclared fields to the list; or raises `Wrong`."""


class Wrong(Exception):
    """Something wrong with a value, or with one within it: the kind of the reason, the path below, and words."""

    def __init__(self, kind: str, path: str, words: str) -> None:
        super().__init__(kind, path, words)
        self.kind, self.path, self.words = kind, path, words

    def below(self, path: str) -> Wrong:
        """This error, told of the value that it is in."""
        return Wrong(self.kind, path + self.path, self.words)

    @property
    def reason(self) -> str:
        """The reason as a row has it."""
        return f"{self.kind}: {self.path} {self.words}"


@dataclass(frozen=True)
class _Field:
    """A declared field: its column, its name where it is written, whether it must be there, and how it is read."""

    name: str
    written: str
    required: bool
    read: Read


def reader_of(
    columns: Sequence[sql.Column], fields: Mapping[str, str] | None = None, leaves: Leaves = leaf_of
) -> Callable[[Any], Row]:
    """Makes rows of the `columns` out of parsed objects, such as `object_of` yields.

    `fields`: the names of the fields of columns, where they are not the columns' names. `leaves`: how single values are
    read. A column whose value is wrong is None in the row, and the reason against it has the path within the object and
    what is written there. Fields that nobody declared are told by their paths, in which the values of an array or a map
    have that of the whole.

    Raises:
        ValueError: a column has a type that JSON cannot carry; the text is that type.
    """
    declared = _fields(((each.name, kind_of(each), each.required) for each in columns), "", fields or {}, leaves)
    known = frozenset(field.written for field in declared)

    def row(members: Mapping[str, Any]) -> Row:
        values: list[Any] = []
        wrong: dict[str, str] = {}
        within: list[str] = []
        for field in declared:
            value = members.get(field.written)
            try:
                if value is not None:
                    value = field.read(value, within)
                elif field.required:
                    raise _missing()
            except Wrong as error:
                value = None
                wrong[field.name] = error.below(field.written).reason
            values.append(value)
        others = [name for name in members if name not in known] if not known.issuperset(members) else []
        return Row(values, wrong or None, sorted({*others, *within}) or None)

    return row


def _fields(
    declared: Iterable[tuple[str, exp.DataType, bool]], path: str, names: Mapping[str, str], leaves: Leaves
) -> tuple[_Field, ...]:
    return tuple(
        _Field(name, written := names.get(name, name), required, _reader(kind, f"{path}{written}", leaves))
        for name, kind, required in declared
    )


def _reader(kind: exp.DataType, path: str, leaves: Leaves) -> Read:
    """The function that reads values of a type, other than null; `path` is that of undeclared fields in it."""
    leaf = leaves(kind)
    if leaf is not None:
        return _leaf(leaf)
    inner = kind.expressions
    if kind.is_type(_Type.ARRAY) and len(inner) == 1:
        return _array(_reader(inner[0], path, leaves))
    if kind.is_type(_Type.MAP) and len(inner) == 2 and inner[0].is_type(_Type.TEXT):
        return _map(_reader(inner[1], path, leaves))
    if kind.is_type(_Type.STRUCT) and inner:
        return _struct(inner, f"{path}.", leaves)
    raise ValueError(kind.sql("spark").lower())


def _leaf(leaf: Leaf) -> Read:
    of_json = leaf.of_json

    def read(value: Any, unknown: list[str]) -> Any:
        try:
            return of_json(value)
        except Refused:
            raise _mistyped(leaf.in_json, value) from None

    return read


def _array(element: Read) -> Read:
    def read(value: Any, unknown: list[str]) -> list[Any]:
        if type(value) is not list:
            raise _mistyped("a JSON array", value)
        elements, first = [], None
        for place, each in enumerate(value):
            try:
                elements.append(None if each is None else element(each, unknown))
            except Wrong as error:
                first = first or error.below(f"[{place}]")
        if first is not None:
            raise first
        return elements

    return read


def _map(inner: Read) -> Read:
    def read(value: Any, unknown: list[str]) -> list[tuple[str, Any]]:
        if type(value) is not dict:
            raise _mistyped("a JSON object", value)
        entries, first = [], None
        for key, each in value.items():
            try:
                entries.append((key, None if each is None else inner(each, unknown)))
            except Wrong as error:
                first = first or error.below(f"[{shown_value(key)}]")
        if first is not None:
            raise first
        return entries

    return read


def _struct(declared: Sequence[exp.ColumnDef], path: str, leaves: Leaves) -> Read:
    fields = _fields(((each.name, each.args["kind"], is_required(each)) for each in declared), path, {}, leaves)
    known = frozenset(field.written for field in fields)

    def read(value: Any, unknown: list[str]) -> dict[str, Any]:
        if type(value) is not dict:
            raise _mistyped("a JSON object", value)
        if not known.issuperset(value):
            unknown += [f"{path}{name}" for name in value if name not in known]
        members, first = {}, None
        for field in fields:
            member = value.get(field.written)
            try:
                if member is not None:
                    member = field.read(member, unknown)
                elif field.required:
                    raise _missing()
                members[field.name] = member
            except Wrong as error:
                first = first or error.below(f".{field.written}")
        if first is not None:
            raise first
        return members

    return read


def _missing() -> Wrong:
    return Wrong("required", "", "is missing")


def _mistyped(words: str, value: Any) -> Wrong:
    return Wrong("type", "", f"is not {words}, got {shown_value(value)}")
