"""Many payloads in JSON at once, by Arrow's parser, where that says for certain what the strict reader would have said.

Arrow's parser is as strict as the grammar, refuses names that stand twice or were not declared, and values of another
type; it takes what one row has wrong as a defect of them all. So whatever it refuses, and whatever it takes that the
strict reader might not, is read row by row. Fields that nobody declared are learned as they come, so that Arrow can be
asked for them, too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.json
from sqlglot import exp

from streaming.base import pc, sql
from streaming.formats.leaves import (
    FIRST_DAY,
    FIRST_MICRO,
    LAST_DAY,
    LAST_MICRO,
    Leaf,
    Leaves,
    decimal_digits,
    is_required,
    kind_of,
    leaf_of,
)

_Type = exp.DataType.Type
_QUICK = {
    _Type.TINYINT: pa.int8(),
    _Type.SMALLINT: pa.int16(),
    _Type.INT: pa.int32(),
    _Type.BIGINT: pa.int64(),
    _Type.DOUBLE: pa.float64(),
    # The strict reader rounds a double, not the digits, to a float, and so has to Arrow.
    _Type.FLOAT: pa.float64(),
    _Type.BOOLEAN: pa.bool_(),
    _Type.TEXT: pa.string(),
    # Arrow reads more forms of these than are allowed.
    _Type.DATE: pa.string(),
    _Type.TIMESTAMPTZ: pa.string(),
}
"""Types of which Arrow says what the strict reader says, and as what it is asked for them."""

_DATE = "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_INSTANT = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?(Z|[+-](0[0-9]|1[0-7]):?[0-5][0-9])$"
_ROW = re.compile(r" in row ([0-9]+)$")
_PART = 500
"""Payloads that are read together where Arrow has refused one of a batch."""
_FEW, _WORTH = 3, 20
"""To leave one out costs as much as to read so many singly; a few are left out in any case."""
_MOST_BYTES = 2**30
_MOST_OPENED = 200
"""Brackets of a payload that Arrow is given: it ends the process where some thousand are within each other."""
_WIDE = 76
"""Digits of the widest decimal of Arrow."""
_NAMES = pa.list_(pa.string())
_SAMPLE = 200
"""Payloads of which the undeclared fields are learned, with one that was refused first."""
_MOST_LEARNED, _MOST_OTHERS = 20, 50
"""Times that a reader learns, and undeclared fields that it knows: whoever sends them may invent new ones."""
_NOT_FINITE = "NaN|Inf"


@dataclass(frozen=True)
class Block:
    """Payloads that were read together: for each one whether it is `certain`, and the columns of those that are.

    `unknown`: of each of those the names of its undeclared fields, null for none.
    """

    certain: np.ndarray
    columns: Sequence[pa.Array]
    unknown: pa.ListArray


@dataclass(frozen=True)
class _Part:
    """A declared value, or one within it: how it is read, and whether it must be there.

    `parts` are the fields of a struct by their names, or the one element of an array.
    """

    type_: pa.DataType
    required: bool
    leaf: Leaf | None
    parts: Mapping[str, _Part]

    @classmethod
    def of(cls, kind: exp.DataType, type_: pa.DataType, leaves: Leaves, *, required: bool = False) -> _Part:
        """The part of a type of Spark, which is `type_` in Arrow."""
        parts = {}
        if kind.is_type(_Type.STRUCT):
            for each in kind.expressions:
                inner, is_needed = each.args["kind"], is_required(each)
                parts[each.name] = cls.of(inner, type_.field(each.name).type, leaves, required=is_needed)
        elif kind.is_type(_Type.ARRAY):
            parts[""] = cls.of(kind.expressions[0], type_.value_type, leaves)
        return cls(type_, required, leaves(kind), parts)


class BlockReader:
    """Reads payloads of some columns in blocks.

    `schema`: how Arrow is asked for them, as `schema_of` says. `types`: what they are. `leaves`: how the strict reader
    reads single values.
    """

    def __init__(
        self,
        columns: Sequence[sql.Column],
        schema: pa.Schema,
        types: Sequence[pa.DataType],
        leaves: Leaves = leaf_of,
    ) -> None:
        self._parts = [
            _Part.of(kind_of(column), type_, leaves, required=column.required)
            for column, type_ in zip(columns, types, strict=True)
        ]
        self._schema = schema
        self._undeclared = Undeclared(schema)
        self._quoted_decimals = _quoted(_decimals_in(schema))

    def read(self, payloads: pa.BinaryArray) -> Block:
        """The block of all payloads; none of those is certain that Arrow refuses, and in doubt some beside them."""
        ends = pc.and_(pc.starts_with(payloads, "{"), pc.ends_with(payloads, "}"))
        opened = pc.add(pc.count_substring(payloads, "{"), pc.count_substring(payloads, "["))
        objects = pc.fill_null(pc.and_(ends, pc.less_equal(opened, _MOST_OPENED)), False)
        lines = payloads.filter(objects)
        table, row = self._table(lines)
        while table is None and self._undeclared.learn(lines, row or 0):
            table, row = self._table(lines)
        tables, taken = [table], np.ones(len(lines), bool)
        if table is None:
            parts = [self._without_refused(lines.slice(first, _PART)) for first in range(0, len(lines), _PART)]
            tables, taken = [part for part, _ in parts], np.concatenate([each for _, each in parts])
        table = pa.concat_tables(tables)
        columns, sure = self._columns(table.select(self._schema.names))
        read = lines.filter(pa.array(taken))
        unknown, told = self._undeclared.named_in(table, read)
        if self._quoted_decimals:
            # Arrow takes a text for a decimal.
            told &= ~pc.match_substring_regex(read, self._quoted_decimals).to_numpy(zero_copy_only=False)
        if not told.all():
            kept = pa.array(told[sure])
            columns, sure = [column.filter(kept) for column in columns], sure & told
        taken[taken] = sure
        certain = objects.to_numpy(zero_copy_only=False).copy()
        certain[certain] = taken
        return Block(certain, columns, unknown if sure.all() else unknown.filter(pa.array(sure)))

    def _without_refused(self, lines: pa.BinaryArray) -> tuple[pa.Table, np.ndarray]:
        """A row for each line but those that Arrow refuses, and which lines these are; none where there are many."""
        taken, start, refused = np.ones(len(lines), bool), 0, 0
        while start < len(lines):
            table, row = self._table(lines.slice(start))
            if table is not None:
                break
            refused += 1
            if row is None or (refused > _FEW and refused * _WORTH > start):
                return self._no_table, np.zeros(len(lines), bool)
            start += row + 1
            taken[start - 1] = False
        table, _ = self._table(lines.filter(pa.array(taken)))
        return (self._no_table, np.zeros(len(lines), bool)) if table is None else (table, taken)

    def _table(self, lines: pa.BinaryArray) -> tuple[pa.Table | None, int | None]:
        """A row a line, or the line that Arrow refuses, if it tells which.

        Each line begins and ends with a brace, so that one with other than one object makes an error or a row more.
        """
        if not len(lines):
            return self._no_table, None
        text = b"\n".join(lines.to_pylist())
        if text.count(b"\n") != len(lines) - 1 or b"\r" in text or len(text) > _MOST_BYTES:
            return None, None
        reading = pa.json.ReadOptions(use_threads=False, block_size=len(text) + 1)
        try:
            table = pa.json.read_json(pa.BufferReader(text), read_options=reading, parse_options=self._parse)
            table.validate(full=True)
        except pa.ArrowInvalid as error:
            told = _ROW.search(str(error))
            return None, min(int(told[1]), len(lines) - 1) if told else None
        return (table if len(table) == len(lines) else None), None

    @property
    def _parse(self) -> pa.json.ParseOptions:
        return pa.json.ParseOptions(explicit_schema=self._undeclared.schema, unexpected_field_behavior="error")

    @property
    def _no_table(self) -> pa.Table:
        return self._parse.explicit_schema.empty_table()

    def _columns(self, table: pa.Table) -> tuple[list[pa.Array], np.ndarray]:
        """The values of the rows that are as the strict reader says, and which rows of the table those are."""
        read = [_read(values.combine_chunks(), part) for values, part in zip(table, self._parts, strict=True)]
        sure = np.ones(len(table), bool)
        for _, each in read:
            if each is not None and not pc.all(each).as_py():
                sure &= each.to_numpy(zero_copy_only=False)
        columns = [column for column, _ in read]
        return (columns if sure.all() else [column.filter(pa.array(sure)) for column in columns]), sure


def _read(values: pa.Array, part: _Part) -> tuple[pa.Array, pa.BooleanArray | None]:
    """The values as their type is, and which of them are what the strict reader says; None where all are."""
    column, sure = _read_within(values, part) if part.parts else _read_leaves(values, part)
    if sure is not None:
        # Of a null there is nothing to say but whether one may be there.
        sure = pc.fill_null(sure, True)
    if part.required:
        sure = column.is_valid() if sure is None else pc.and_(sure, column.is_valid())
    return column, sure


def _read_leaves(values: pa.Array, part: _Part) -> tuple[pa.Array, pa.BooleanArray | None]:
    """As `_read`, of single values; of nulls nothing is said."""
    assert part.leaf is not None
    if pa.types.is_floating(part.type_):
        # Arrow takes the word NaN, and knows two zeros.
        column = (values if part.leaf.signed_zero else pc.add(values, 0.0)).cast(part.type_, safe=False)
        return column, pc.is_finite(column)
    if pa.types.is_decimal(part.type_):
        most = Decimal((0, (9,) * part.type_.precision, -part.type_.scale))
        fits = pc.less_equal(pc.abs(values), pa.scalar(most, values.type))
        return pc.if_else(fits, values, None).cast(part.type_), fits
    if pa.types.is_string(values.type) and not pa.types.is_string(part.type_):
        column = _of_texts(values, part.type_, part.leaf)
        return column, pc.equal(column.is_valid(), values.is_valid())
    return values, None


def _read_within(values: pa.Array, part: _Part) -> tuple[pa.Array, pa.BooleanArray | None]:
    """As `_read`, of structs and arrays: one is what the strict reader says where all that is in it is."""
    if pa.types.is_struct(part.type_):
        members = dict(zip((each.name for each in values.type), values.flatten(), strict=True))
        read = [_read(members[name], inner) for name, inner in part.parts.items()]
        column = pa.StructArray.from_arrays([each for each, _ in read], fields=[*part.type_], mask=values.is_null())
        doubts = [pc.invert(sure) for _, sure in read if sure is not None]
        if not doubts:
            return column, None
        # Nothing within a null is missing.
        return column, pc.invert(pc.and_(reduce(pc.or_, doubts), values.is_valid()))
    elements, sure = _read(values.flatten(), part.parts[""])
    lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    column = pa.ListArray.from_arrays(offsets, elements, type=part.type_, mask=values.is_null())
    if sure is None:
        return column, None
    return column, pa.array(~any_within(values, ~sure.to_numpy(zero_copy_only=False)))


def schema_of(columns: Sequence[sql.Column], fields: Mapping[str, str]) -> pa.Schema | None:
    """The schema by which Arrow reads the fields of `columns`; None where one has a type that it is not asked for."""
    types = [_asked(kind_of(column)) for column in columns]
    if None in types:
        return None
    names = (fields.get(column.name, column.name) for column in columns)
    return pa.schema([pa.field(*each) for each in zip(names, types, strict=True)])


def _asked(kind: exp.DataType) -> pa.DataType | None:
    """The type by which Arrow is asked for values of a type of Spark; None where it is not."""
    if kind.is_type(_Type.ARRAY):
        element = _asked(kind.expressions[0])
        # A text among its elements would be taken, and has no name by which it could be found.
        return None if element is None or pa.types.is_decimal(element) else pa.list_(element)
    if kind.is_type(_Type.STRUCT):
        types = {each.name: _asked(each.args["kind"]) for each in kind.expressions}
        # Of a name that is declared twice nobody knows which is meant.
        is_read = len(types) == len(kind.expressions) and None not in types.values()
        return pa.struct([pa.field(*each) for each in types.items()]) if is_read else None
    if kind.is_type(_Type.DECIMAL):
        # Arrow minds the digits that are written, and then adds zeros up to the scale, for which there has to be room.
        scale = decimal_digits(kind)[1]
        return pa.decimal256(_WIDE - scale, scale)
    return _QUICK.get(kind.this)


def _decimals_in(fields: Iterable[pa.Field]) -> Iterator[str]:
    """The names of fields that are decimals, at every depth."""
    for each in fields:
        if pa.types.is_decimal(each.type):
            yield each.name
        yield from _decimals_in(members_of(each.type))


def _quoted(names: Iterable[str]) -> str:
    """A regular expression of objects in which a field of one of these names may be a text; empty where none is."""
    told = "|".join(sorted({re.escape(name) for name in names}))
    # A name may be written by escapes.
    return told and rf'"({told})"[ \t]*:[ \t]*"|\\'


def _of_texts(texts: pa.Array, type_: pa.DataType, leaf: Leaf) -> pa.Array:
    """Texts as values of a type that counts from 1970; null where they are none."""
    if pa.types.is_date(type_):
        form, counted, first, last = _DATE, pa.int32(), FIRST_DAY, LAST_DAY
    else:
        form, counted, first, last = _INSTANT, pa.int64(), FIRST_MICRO, LAST_MICRO
    formed = pc.match_substring_regex(texts, form)
    try:
        numbers = pc.cast(pc.if_else(formed, texts, None), type_).view(counted)
    # A text has the form of a day that there is not.
    except pa.ArrowInvalid:
        return pa.array([leaf.or_none(text) for text in texts.to_pylist()], type_)
    there = pc.and_(pc.greater_equal(numbers, first), pc.less_equal(numbers, last))
    return pc.if_else(there, numbers, None).view(type_)


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
