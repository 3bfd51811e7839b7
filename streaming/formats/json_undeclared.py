"""Undeclared fields of JSON that is read in blocks: what is learned of them, and which payload has which."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.json

from streaming.base import pc

_NAMES = pa.list_(pa.string())
_SAMPLE = 200
"""Payloads of which the undeclared fields are learned, with one that was refused first."""
_MOST_LEARNED, _MOST_OTHERS = 20, 50
"""Times that a reader learns, and undeclared fields that it knows: whoever sends them may invent new ones."""
_NOT_FINITE = "NaN|Inf"


class Undeclared:
    """The undeclared fields that a reader of blocks has met, within declared structs and arrays, too.

    Arrow takes a payload with a field that it was not asked for as a defect, so it is asked for these, too: `schema`
    has them behind what is `declared`, at every depth.
    """

    def __init__(self, declared: pa.Schema) -> None:
        self.schema = declared
        self._declared = declared
        self._learned = 0

    def learn(self, lines: pa.BinaryArray, row: int) -> bool:
        """Take note of undeclared fields from `row` on; true if there are new ones, so that another try may succeed."""
        if self._learned >= _MOST_LEARNED:
            return False
        text = b"\n".join(lines.slice(row, _SAMPLE).to_pylist())
        parse = pa.json.ParseOptions(explicit_schema=self._declared, unexpected_field_behavior="infer")
        try:
            found = pa.json.read_json(pa.BufferReader(text), pa.json.ReadOptions(False, len(text) + 1), parse).schema
            known = pa.schema(_with_others(self._declared, self.schema, found))
        # The second of a name that is no UTF-8.
        except (pa.ArrowInvalid, UnicodeDecodeError):
            return False
        if known == self.schema or sum(1 for _ in _others(self._declared, known)) > _MOST_OTHERS:
            return False
        self._learned += 1
        self.schema = known
        return True

    def named_in(self, table: pa.Table, lines: pa.BinaryArray) -> tuple[pa.ListArray, np.ndarray]:
        """The paths of the undeclared fields of each line of a table, and of which lines these are certain."""
        number, certain = len(lines), np.ones(len(lines), bool)
        has: dict[str, np.ndarray] = {}
        of_one = _names_of_one(self.schema)
        columns = {name: table[name].combine_chunks() for name in self.schema.names}
        for other in _undeclared_in(_types(self._declared), columns, np.ones(number, bool), ""):
            is_null, is_sure = _nulls_of(other, lines, is_of_one=other.name in of_one)
            there, certain = other.is_there | is_null, certain & is_sure
            has[other.path] = has[other.path] | there if other.path in has else there
        if not has:
            return pa.nulls(number, _NAMES), certain
        names = sorted(has)
        those = np.stack([has[name] for name in names], axis=1)
        numbers = those.sum(axis=1)
        some = pa.array(numbers > 0)
        # The strict reader refuses these in a value that nobody declared, too.
        odd = pc.match_substring_regex(lines, _NOT_FINITE)
        certain &= ~pc.and_(some, odd).to_numpy(zero_copy_only=False)
        offsets = pa.array(np.concatenate([[0], np.cumsum(numbers)]), pa.int32())
        lists = pa.ListArray.from_arrays(offsets, pa.array(names).take(pa.array(np.nonzero(those)[1])))
        return pc.if_else(some, lists, pa.scalar(None, _NAMES)), certain


class _Other(NamedTuple):
    """An undeclared field: which lines have a value of it, and which have an object that may have it as null."""

    path: str
    name: str
    is_there: np.ndarray
    is_open: np.ndarray


def any_within(lists: pa.ListArray, elements: np.ndarray) -> np.ndarray:
    """Which of some lists have an element for which it is true; `elements` are those of all lists, in order."""
    ends = np.cumsum(pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False))
    counted = np.concatenate([[0], np.cumsum(elements)])
    within: np.ndarray = np.diff(counted[np.concatenate([[0], ends])]) > 0
    return within


def _undeclared_in(
    declared: Mapping[str, pa.DataType], columns: Mapping[str, pa.Array], are_objects: np.ndarray, path: str
) -> Iterator[_Other]:
    """The undeclared fields among the `columns` of some objects, and within these."""
    for name, values in columns.items():
        if name in declared:
            yield from _undeclared_within(declared[name], values, f"{path}{name}")
        else:
            is_there = values.is_valid().to_numpy(zero_copy_only=False)
            yield _Other(f"{path}{name}", name, is_there, are_objects & ~is_there)


def _undeclared_within(declared: pa.DataType, values: pa.Array, path: str) -> Iterator[_Other]:
    """The undeclared fields within the values of a declared field."""
    if pa.types.is_struct(declared):
        members = dict(zip(_types(values.type), values.flatten(), strict=True))
        are_objects = values.is_valid().to_numpy(zero_copy_only=False)
        yield from _undeclared_in(_types(declared), members, are_objects, f"{path}.")
    elif pa.types.is_list(declared):
        for each in _undeclared_within(declared.value_type, values.flatten(), path):
            yield each._replace(is_there=any_within(values, each.is_there), is_open=any_within(values, each.is_open))


def _nulls_of(other: _Other, lines: pa.BinaryArray, *, is_of_one: bool) -> tuple[np.ndarray, np.ndarray]:
    """Which lines have an undeclared field as null, and of which lines that is certain by their text.

    `is_of_one`: no other field, declared or not, has its name.
    """
    is_null, is_sure = np.zeros(len(lines), bool), np.ones(len(lines), bool)
    places = np.flatnonzero(other.is_open & ~other.is_there)
    if len(places):
        without = lines.take(pa.array(places))
        said = pc.match_substring_regex(without, f'"{re.escape(other.name)}"[ \t]*:').to_numpy(zero_copy_only=False)
        # A text without escapes has no quote, so that what is said is the name of a field.
        escaped = pc.match_substring(without, "\\").to_numpy(zero_copy_only=False)
        is_null[places] = said & ~escaped
        is_sure[places] = ~(escaped | (said & (not is_of_one)))
    return is_null, is_sure


def _with_others(declared: Iterable[pa.Field], known: Iterable[pa.Field], found: Iterable[pa.Field]) -> list[pa.Field]:
    """The fields that are known, with those that were found beside the declared ones at every depth."""
    types, more, of = {each.name: each.type for each in known}, _types(found), _types(declared)
    for name, type_ in more.items():
        if name in of:
            types[name] = _grown(of[name], types[name], type_)
        else:
            types[name] = _widest(type_) if name not in types else _joined(types[name], _widest(type_))
    return [pa.field(*each) for each in types.items()]


def _grown(declared: pa.DataType, known: pa.DataType, found: pa.DataType) -> pa.DataType:
    """The known type of a declared field, with the undeclared ones that were found within it."""
    if pa.types.is_struct(declared) and pa.types.is_struct(found):
        return pa.struct(_with_others(declared, known, found))
    if pa.types.is_list(declared) and pa.types.is_list(found):
        return pa.list_(_grown(declared.value_type, known.value_type, found.value_type))
    return known


def _joined(known: pa.DataType, found: pa.DataType) -> pa.DataType:
    """The type of an undeclared field that was found anew; of one that is null nothing is learned but its name."""
    if pa.types.is_null(found):
        return known
    if pa.types.is_list(known) and pa.types.is_list(found):
        return pa.list_(_joined(known.value_type, found.value_type))
    if pa.types.is_struct(known) and pa.types.is_struct(found):
        return pa.struct(_with_others((), known, found))
    return found


def _widest(type_: pa.DataType) -> pa.DataType:
    """The type as which a field is read whose values nobody needs, so that others like them can be read, too."""
    if pa.types.is_integer(type_):
        return pa.float64()
    if pa.types.is_timestamp(type_):
        return pa.string()
    if pa.types.is_list(type_):
        return pa.list_(_widest(type_.value_type))
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(each.name, _widest(each.type)) for each in type_])
    return type_


def _others(declared: Iterable[pa.Field], known: Iterable[pa.Field]) -> Iterator[str]:
    """The names of undeclared fields among those that are known, and within these."""
    of = _types(declared)
    for each in known:
        if each.name not in of:
            yield each.name
        yield from _others(members_of(of.get(each.name)), members_of(each.type))


def _names_of_one(fields: Iterable[pa.Field]) -> set[str]:
    """The names that only one field has, at whatever depth."""
    return {name for name, number in Counter(_others((), fields)).items() if number == 1}


def members_of(type_: pa.DataType | None) -> Iterable[pa.Field]:
    """The fields of the objects that values of a type are, or have as elements."""
    while type_ is not None and pa.types.is_list(type_):
        type_ = type_.value_type
    return () if type_ is None or not pa.types.is_struct(type_) else type_


def _types(fields: Iterable[pa.Field]) -> dict[str, pa.DataType]:
    return {each.name: each.type for each in fields}
