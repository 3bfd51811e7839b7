"""Rows of deliveries in tables of files, as Delta and Iceberg have them: their types, what an upsert replaces, audits.

Nothing here reads or writes; whoever does has the rows in Arrow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streaming.base import REASON, REVISION, SinkError
from streaming.sinks.encoding import json_objects, plain_texts
from streaming.sinks.sink import CHANGE, DELETE, Comparison, NumberedBatch, RefusedRow

_DIGEST_BYTES = 8
_NAMED = 5
_UNSIGNED = {"uint8": pa.int16(), "uint16": pa.int32(), "uint32": pa.int64()}
_SIGNED_BITS = {pa.int8(): 8, pa.int16(): 16, pa.int32(): 32, pa.int64(): 64}
_WHOLE_IN_DOUBLE = 32
"""Bits of the whole numbers that a double keeps every one of."""


def kept_type(type_: pa.DataType) -> pa.DataType | None:
    """The type that a table keeps values of an Arrow type as; None for what it has no type for, kept as text.

    Instants are in microseconds, those with a zone in UTC. Without a type are times of day, intervals, structs without
    fields and decimals of more than 38 digits, and what has one of these in it.
    """
    types = pa.types
    if types.is_struct(type_):
        fields = [(field.name, kept_type(field.type)) for field in type_]
        return pa.struct(fields) if fields and all(kept is not None for _, kept in fields) else None
    if types.is_map(type_):
        key, item = kept_type(type_.key_type), kept_type(type_.item_type)
        return None if key is None or item is None else pa.map_(key, item)
    if types.is_list(type_) or types.is_large_list(type_) or types.is_fixed_size_list(type_):
        element = kept_type(type_.value_type)
        return None if element is None else pa.list_(pa.field("element", element))
    return _kept_scalar(type_)


def _kept_scalar(type_: pa.DataType) -> pa.DataType | None:
    types = pa.types
    if types.is_dictionary(type_):
        return kept_type(type_.value_type)
    if types.is_timestamp(type_):
        return pa.timestamp("us", None if type_.tz is None else "UTC")
    if types.is_date(type_):
        return pa.date32()
    if types.is_large_string(type_) or types.is_string_view(type_) or types.is_null(type_):
        return pa.string()
    if types.is_large_binary(type_) or types.is_binary_view(type_) or types.is_fixed_size_binary(type_):
        return pa.binary()
    if types.is_float16(type_):
        return pa.float32()
    is_kept = (types.is_signed_integer, types.is_floating, types.is_boolean, types.is_string, types.is_binary)
    if any(is_type(type_) for is_type in is_kept) or types.is_decimal128(type_):
        return type_
    return _UNSIGNED.get(str(type_))


def kept_rows(batch: NumberedBatch, key: Sequence[str]) -> pa.Table:
    """The rows of a batch as a table keeps them: of a `key` with their revision and reason, else as messages are.

    What a table has no type for is the text that JSON has for it.
    """
    rows = batch.messages
    if key:
        own = [name for name in (REVISION, REASON) if name in batch.rows.column_names]
        rows = batch.rows.select([*batch.selected.column_names, *own])
    return with_kept_types(rows)


def with_kept_types(rows: pa.Table) -> pa.Table:
    """The rows with the types that `kept_type` gives."""
    columns = [
        pa.chunked_array([pa.array(plain_texts(column), pa.string())]) if kept is None else column.cast(kept)
        for column, kept in ((column, kept_type(column.type)) for column in rows.columns)
    ]
    return pa.table(columns, names=rows.column_names) if columns else rows


@dataclass(frozen=True)
class Fit:
    """The columns of a table once it has taken rows, and those of them that it lacks, or that get further fields."""

    columns: pa.Schema
    added: pa.Schema

    @classmethod
    def of(cls, rows: pa.Schema, there: pa.Schema, address: str) -> Fit:
        """The fit of rows into a table with the columns that are `there`.

        A whole number or a float may come into a wider column, a decimal into one of more digits, and a struct may
        lack fields or have further ones.

        Raises:
            SinkError: a column has another type there, or a name that differs in case alone.
        """
        by_name = {name.lower(): name for name in there.names}
        columns, added = {field.name: field for field in there}, list[pa.Field]()
        for field in rows:
            name = by_name.get(field.name.lower())
            if name is None:
                by_name[field.name.lower()] = field.name
                columns[field.name] = field
                added.append(field)
                continue
            if name != field.name:
                raise SinkError(
                    f"{address} has the column {name!r}, and {field.name!r} is delivered, whose name differs in case "
                    f"alone. Call it {name!r} in `select`; the batch is sent again by itself.",
                    column=field.name,
                    address=address,
                )
            existing = there.field(name)
            type_ = _merged(existing.type, field.type)
            if type_ is None:
                raise SinkError(
                    f"{address} has the column '{name} {existing.type}', and '{name} {field.type}' is delivered. The "
                    f"type of a column stays: cast it in `select`, or deliver it under another name, such as "
                    f"'new_{name}', which is added; or deliver to another place. Nothing was written; the batch is "
                    "sent again by itself.",
                    column=name,
                    value=str(field.type),
                    address=address,
                )
            if type_ != kept_type(existing.type):
                added.append(pa.field(name, type_))
                columns[name] = pa.field(name, type_)
        return cls(pa.schema(list(columns.values())), pa.schema(added))

    def only(self, names: Sequence[str]) -> Fit:
        """Some of the columns."""
        return Fit(pa.schema([self.columns.field(name) for name in names]), pa.schema([]))

    def aligned(self, rows: pa.Table) -> pa.Table:
        """The rows with all columns of the table, null where they have none."""
        columns = [
            rows[field.name].cast(field.type)
            if field.name in rows.column_names
            else pa.chunked_array([pa.nulls(rows.num_rows, field.type)])
            for field in self.columns
        ]
        return pa.Table.from_arrays(columns, names=self.columns.names)

    def refused(self, rows: pa.Table) -> list[RefusedRow]:
        """The rows with a null in a column that takes none; they are of one table, aligned or not."""
        reasons: dict[int, str] = {}
        for field in self.columns:
            if field.nullable:
                continue
            is_null = rows[field.name].is_null().to_pylist() if field.name in rows.column_names else None
            for position in range(rows.num_rows):
                if is_null is None or is_null[position]:
                    reasons.setdefault(
                        position,
                        f"the column {field.name!r} is null, and the table takes no null in it; select a value for it, "
                        "or leave such rows out with `where`.",
                    )
        return [RefusedRow(position, reasons[position]) for position in sorted(reasons)]


def _merged(there: pa.DataType, new: pa.DataType) -> pa.DataType | None:
    """The type that holds the values of both, which is that of the table but for fields of structs; None for none."""
    there, both = kept_type(there) or there, (there, new)
    if there == new:
        return there
    if all(map(pa.types.is_struct, both)):
        fields = {field.name: field.type for field in there}
        if {name.lower() for name in fields} & {field.name.lower() for field in new if field.name not in fields}:
            return None
        for field in new:
            type_ = _merged(fields[field.name], field.type) if field.name in fields else field.type
            if type_ is None:
                return None
            fields[field.name] = type_
        return pa.struct(list(fields.items()))
    if all(map(pa.types.is_list, both)):
        element = _merged(there.value_type, new.value_type)
        return None if element is None else pa.list_(pa.field("element", element))
    return there if _holds(there, new) else None


def _holds(there: pa.DataType, new: pa.DataType) -> bool:
    """True if a wider type keeps every value of a narrower one as it is."""
    types = pa.types
    if new in _SIGNED_BITS:
        bits = _SIGNED_BITS[new]
        return bits < _SIGNED_BITS.get(there, 0) or (types.is_float64(there) and bits <= _WHOLE_IN_DOUBLE)
    if types.is_float32(new):
        return bool(types.is_float64(there))
    if types.is_decimal128(new) and types.is_decimal128(there):
        return bool(there.scale >= new.scale and there.precision - there.scale >= new.precision - new.scale)
    return False


@dataclass(frozen=True)
class Bounds:
    """The least and the greatest value of a column in a batch; of a file with none in between no row is of its keys."""

    column: str
    least: Any
    greatest: Any

    @classmethod
    def of(cls, rows: pa.Table, column: str) -> Bounds | None:
        """Those of a column, None where it has nulls, no rows, or values whose order files may see otherwise."""
        values, types = rows[column], pa.types
        is_ordered = (types.is_integer, types.is_date, types.is_timestamp, types.is_string)
        if not len(values) or values.null_count or not any(is_type(values.type) for is_type in is_ordered):
            return None
        try:
            found = pc.min_max(values).as_py()
        except (OverflowError, ValueError):
            # Python knows the years 1 to 9999 only.
            return None
        return cls(column, found["min"], found["max"])

    def misses(self, least: Any, greatest: Any) -> bool:
        """True if no value is in a file of these bounds, which are null where nobody knows them."""
        if least is None or greatest is None:
            return False
        return bool(greatest < self.least or least > self.greatest)


class Upsert:
    """The newest row of each key in a batch, held against the rows of a table, one file after the other.

    A row of the table goes where the batch has its key in a revision that is not older; where it has an older one, it
    stays, and that of the batch is left out. A key that is null is one like others, and NaN is one number.
    """

    def __init__(self, rows: pa.Table, key: Sequence[str], changes: pa.ChunkedArray | None) -> None:
        import duckdb

        self._key = key
        self._connection = duckdb.connect()
        self._same = " and ".join(f"t.k{place} is not distinct from s.k{place}" for place in range(len(key)))
        deletes = pa.nulls(rows.num_rows, pa.bool_()) if changes is None else pc.equal(changes, DELETE)
        given = self._keys(rows).append_column("gone", pc.fill_null(deletes, False))
        self._connection.register("given", given)
        keys = ", ".join(f"k{place}" for place in range(len(key)))
        self._connection.execute(
            "create table newest as select * from given qualify row_number() over "
            f"(partition by {keys} order by revision desc nulls last, place desc) = 1"
        )
        self._outdated: set[int] = set()

    def replaced(self, rows: pa.Table) -> list[int]:
        """The positions of those `rows` of the table that do not stay; they have the columns of the key, and others."""
        self._connection.register("stored", self._keys(rows))
        matched = self._connection.execute(
            f"select t.place, s.place, coalesce(t.revision <= s.revision, true) from stored t join newest s "
            f"on {self._same}"
        ).fetchall()
        self._connection.unregister("stored")
        self._outdated |= {given for _, given, is_newer in matched if not is_newer}
        return sorted({stored for stored, _, is_newer in matched if is_newer})

    def written(self) -> list[int]:
        """The positions of the rows of the batch that come into the table, once all of its files were seen."""
        newest = self._connection.execute("select place from newest where not gone order by place").fetchall()
        return [place for (place,) in newest if place not in self._outdated]

    def close(self) -> None:
        """Give the memory back."""
        self._connection.close()

    def _keys(self, rows: pa.Table) -> pa.Table:
        known = rows[REVISION] if REVISION in rows.column_names else pa.nulls(rows.num_rows, pa.int64())
        columns = {f"k{place}": rows[name] for place, name in enumerate(self._key)}
        return pa.table({**columns, "revision": known, "place": pa.array(range(rows.num_rows), pa.int64())})


def changes_of(batch: NumberedBatch) -> pa.ChunkedArray | None:
    """The kind of each change of a batch; None where every row is there to stay."""
    return batch.rows[CHANGE] if CHANGE in batch.rows.column_names else None


def without_positions(rows: pa.Table, positions: Sequence[int]) -> pa.Table:
    """The rows but for those at some positions."""
    stays = np.ones(rows.num_rows, bool)
    stays[list(positions)] = False
    return rows.filter(pa.array(stays))


class _Digests:
    """Digests of rows, with the texts of their keys where there is a key."""

    def __init__(self, tables: Iterable[pa.Table], key: Sequence[str]) -> None:
        digests: list[NDArray[np.uint64]] = []
        keys: list[pa.Array] = []
        for rows in tables:
            lines = json_objects(rows)
            hashed = [int.from_bytes(blake2b(line, digest_size=_DIGEST_BYTES).digest()) for line in lines]
            digests.append(np.array(hashed, np.uint64))
            if key:
                keys.append(pa.array(json_objects(rows.select(list(key))), pa.binary()))
        self._keys = pa.chunked_array(keys, pa.binary())
        every = np.concatenate(digests) if digests else np.empty(0, np.uint64)
        self.rows = len(every)
        self._digests, self._first, self._counts = np.unique(every, return_index=True, return_counts=True)

    def beyond(self, other: _Digests) -> tuple[int, list[str]]:
        """The number of rows that the `other` has not, each as often as it is there; and keys of some of them."""
        places = np.searchsorted(other._digests, self._digests)
        counts = np.zeros(len(self._digests), np.int64)
        within = places < len(other._digests)
        same = within.copy()
        same[within] = other._digests[places[within]] == self._digests[within]
        counts[same] = other._counts[places[same]]
        more = np.maximum(self._counts - counts, 0)
        named = self._first[more > 0][:_NAMED] if len(self._keys) else ()
        return int(more.sum()), [self._keys[int(place)].as_py().decode() for place in named]


def compare_rows(should: Iterable[pa.Table], there: Iterable[pa.Table], key: Sequence[str]) -> Comparison:
    """Each row as often as it should be there, by digests of its JSON; names keys of those that differ.

    Both have the same columns in the same order. In memory are 8 bytes of each row, and the text of its key.
    """
    expected, found = _Digests(should, key), _Digests(there, key)
    lacking, keys = expected.beyond(found)
    not_expected, other_keys = found.beyond(expected)
    named = sorted({*keys, *other_keys})[:_NAMED]
    # A changed row is lacking as it should be, and is there as it should not.
    return Comparison(expected.rows, max(lacking, not_expected), ("row", "rows"), tuple(named))


def grouped(tables: Iterable[pa.Table], most_bytes: int) -> Iterator[pa.Table]:
    """The tables, those that follow one another brought together as long as they have fewer bytes in all."""
    waiting: list[pa.Table] = []
    for rows in tables:
        if waiting and sum(each.nbytes for each in waiting) + rows.nbytes > most_bytes:
            yield pa.concat_tables(waiting)
            waiting = []
        if rows.num_rows:
            waiting.append(rows)
    if waiting:
        yield pa.concat_tables(waiting)
