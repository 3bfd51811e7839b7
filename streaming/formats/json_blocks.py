"""Many payloads in JSON at once, by Arrow's parser, where that says for certain what the strict reader would have said.

Arrow's parser is as strict as the grammar, refuses names that stand twice or were not declared, and values of another
type; it takes what one row has wrong as a defect of them all. So whatever it refuses, and whatever it takes that the
strict reader might not, is read row by row.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.json
from sqlglot import exp

from streaming.base import pc, sql
from streaming.formats.json_text import DEEPEST
from streaming.formats.leaves import FIRST_DAY, FIRST_MICRO, LAST_DAY, LAST_MICRO, Leaf, Leaves, leaf_of
from streaming.formats.nested import kind_of

_Type = exp.DataType.Type
_QUICK = {
    _Type.TINYINT: pa.int8(),
    _Type.SMALLINT: pa.int16(),
    _Type.INT: pa.int32(),
    _Type.BIGINT: pa.int64(),
    _Type.DOUBLE: pa.float64(),
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


_NAMES = pa.list_(pa.string())
_SAMPLE = 200
"""Payloads of which the undeclared fields are learned, with one that was refused first."""
_MOST_LEARNED, _MOST_OTHERS = 20, 50
"""Times that a reader learns, and undeclared fields that it knows: whoever sends them may invent new ones."""
_NOT_FINITE = "NaN|Infinity"


@dataclass(frozen=True)
class Block:
    """Payloads that were read together: for each one whether it is `certain`, and the columns of those that are.

    `unknown`: of each of those the names of its undeclared fields, null for none.
    """

    certain: np.ndarray
    columns: Sequence[pa.Array]
    unknown: pa.ListArray


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
        self._of: list[tuple[bool, pa.DataType, Leaf]] = []
        for column, type_ in zip(columns, types, strict=True):
            leaf = leaves(kind_of(column))
            assert leaf is not None
            self._of.append((column.required, type_, leaf))
        self._schema = schema
        self._others: dict[str, pa.DataType] = {}
        self._learned = 0

    def read(self, payloads: pa.BinaryArray) -> Block:
        """The block of all payloads; none of those is certain that Arrow refuses, and in doubt some beside them."""
        objects = pc.fill_null(pc.and_(pc.starts_with(payloads, "{"), pc.ends_with(payloads, "}")), False)
        lines = payloads.filter(objects)
        table, row = self._table(lines)
        while table is None and self._learn(lines, row or 0):
            table, row = self._table(lines)
        tables, taken = [table], np.ones(len(lines), bool)
        if table is None:
            parts = [self._without_refused(lines.slice(first, _PART)) for first in range(0, len(lines), _PART)]
            tables, taken = [part for part, _ in parts], np.concatenate([each for _, each in parts])
        table = pa.concat_tables(tables)
        columns, sure = self._columns(table.select(self._schema.names))
        unknown, told = self._unknown(table, lines.filter(pa.array(taken)))
        if not told.all():
            kept = pa.array(told[sure])
            columns, sure = [column.filter(kept) for column in columns], sure & told
        taken[taken] = sure
        certain = objects.to_numpy(zero_copy_only=False).copy()
        certain[certain] = taken
        return Block(certain, columns, unknown if sure.all() else unknown.filter(pa.array(sure)))

    def _learn(self, lines: pa.BinaryArray, row: int) -> bool:
        """Take note of undeclared fields from `row` on; true if there are new ones, so that another try may succeed."""
        if self._learned >= _MOST_LEARNED:
            return False
        self._learned += 1
        text = b"\n".join(lines.slice(row, _SAMPLE).to_pylist())
        parse = pa.json.ParseOptions(explicit_schema=self._schema, unexpected_field_behavior="infer")
        try:
            found = pa.json.read_json(pa.BufferReader(text), pa.json.ReadOptions(False, len(text) + 1), parse).schema
        except pa.ArrowInvalid:
            return False
        others = {field.name: _widest(field.type) for field in found if field.name not in self._schema.names}
        # Of a field that is null in all of them nothing is learned but its name.
        new = {
            name: type_
            for name, type_ in others.items()
            if name not in self._others or (type_ != self._others[name] and not pa.types.is_null(type_))
        }
        if not new or len(self._others | new) > _MOST_OTHERS:
            return False
        self._others |= new
        return True

    def _unknown(self, table: pa.Table, lines: pa.BinaryArray) -> tuple[pa.ListArray, np.ndarray]:
        """The names of the undeclared fields of each line, and of which lines these are certain."""
        names, certain = sorted(self._others), np.ones(len(lines), bool)
        if not names:
            return pa.nulls(len(lines), _NAMES), certain
        has = np.stack([self._has(table[name], name, lines, certain) for name in names], axis=1)
        numbers = has.sum(axis=1)
        some = pa.array(numbers > 0)
        # The strict reader refuses both in a value that nobody declared, too.
        opened = pc.add(pc.count_substring(lines, "{"), pc.count_substring(lines, "["))
        odd = pc.or_(pc.match_substring_regex(lines, _NOT_FINITE), pc.greater(opened, DEEPEST))
        certain &= ~pc.and_(some, odd).to_numpy(zero_copy_only=False)
        offsets = pa.array(np.concatenate([[0], np.cumsum(numbers)]), pa.int32())
        lists = pa.ListArray.from_arrays(offsets, pa.array(names).take(pa.array(np.nonzero(has)[1])))
        return pc.if_else(some, lists, pa.scalar(None, _NAMES)), certain

    @staticmethod
    def _has(values: pa.ChunkedArray, name: str, lines: pa.BinaryArray, certain: np.ndarray) -> np.ndarray:
        """Which lines have a field; where it may be null or missing and its text does not tell, none is `certain`."""
        has: np.ndarray = values.is_valid().to_numpy().copy()
        places = np.flatnonzero(~has)
        if len(places):
            without = lines.take(pa.array(places))
            said = pc.match_substring_regex(without, f'"{re.escape(name)}"[ \t]*:').to_numpy(zero_copy_only=False)
            # A text without escapes has no quote, and an object within none would be a brace more.
            plain = pc.equal(pc.count_substring(without, "{"), 1).to_numpy(zero_copy_only=False)
            escaped = pc.match_substring(without, "\\").to_numpy(zero_copy_only=False)
            has[places] = said & plain & ~escaped
            certain[places] &= ~(escaped | (said & ~plain))
        return has

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
        schema = pa.schema([*self._schema, *self._others.items()])
        return pa.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error")

    @property
    def _no_table(self) -> pa.Table:
        return self._parse.explicit_schema.empty_table()

    def _columns(self, table: pa.Table) -> tuple[list[pa.Array], np.ndarray]:
        """The values of the rows that are as the strict reader says, and which rows of the table those are."""
        read = [self._column(values.combine_chunks(), *of) for values, of in zip(table, self._of, strict=True)]
        sure = np.ones(len(table), bool)
        for _, each in read:
            if each is not None and not pc.all(each).as_py():
                sure &= each.to_numpy(zero_copy_only=False)
        columns = [column for column, _ in read]
        return (columns if sure.all() else [column.filter(pa.array(sure)) for column in columns]), sure

    def _column(
        self, values: pa.Array, required: bool, type_: pa.DataType, leaf: Leaf
    ) -> tuple[pa.Array, pa.BooleanArray | None]:
        """The values as their type is, and which of them are what the strict reader says; None where all are."""
        column, sure = values, None
        if pa.types.is_floating(type_):
            # Arrow takes the word NaN, and knows two zeros.
            column, sure = values if leaf.signed_zero else pc.add(values, 0.0), pc.is_finite(values)
        elif pa.types.is_string(values.type) and not pa.types.is_string(type_):
            column = _of_texts(values, type_, leaf)
            sure = pc.equal(column.is_valid(), values.is_valid())
        if sure is not None:
            # Of a null there is nothing to say but whether one may be there.
            sure = pc.fill_null(sure, True)
        if required:
            sure = column.is_valid() if sure is None else pc.and_(sure, column.is_valid())
        return column, sure


def schema_of(columns: Sequence[sql.Column], fields: Mapping[str, str]) -> pa.Schema | None:
    """The schema by which Arrow reads the fields of `columns`; None where one has a type that it is not asked for."""
    types = [_QUICK.get(kind_of(column).this) for column in columns]
    if None in types:
        return None
    names = (fields.get(column.name, column.name) for column in columns)
    return pa.schema([pa.field(*each) for each in zip(names, types, strict=True)])


def _widest(type_: pa.DataType) -> pa.DataType:
    """The type as which a field is read whose values nobody needs, so that others like them can be read, too."""
    if pa.types.is_integer(type_):
        return pa.float64()
    if pa.types.is_timestamp(type_):
        return pa.string()
    return type_


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
