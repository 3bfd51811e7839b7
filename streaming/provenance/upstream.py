"""From the rows of a stream that follows other results to these, and so down to the first log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import singledispatch
from typing import Any

import pyarrow as pa

from streaming.base import BATCH, OperatorError, ReadError, counted, from_micros, is_close, pc
from streaming.declare import Operator, Stream
from streaming.lake import Lake
from streaming.provenance.answer import InputRow, MadeOf, Row, What, Why
from streaming.provenance.log_rows import as_input
from streaming.reading import key_as_typed, value_as_typed
from streaming.sources import UnitTable, changes_of, unit_table_of
from streaming.tables import delta, rows_of

MOST = 20
"""The most results of one operator that an answer explains; the others are named."""

Explain = Callable[[Operator, Row, What], Why]
Answers = tuple[list[Why], list[str]]


def upstream_of(lake: Lake, stream: Stream, rows: Sequence[InputRow], explain: Explain) -> Answers:
    """The answers for the results that some rows of a stream are, and notes on what is not explained."""
    answers, notes = list[Why](), list[str]()
    if len(stream.source.follows) != 1 or not rows:
        return answers, notes
    ((of, side),) = stream.source.follows
    placed = changes_of(of, lake) if side == "current" else unit_table_of(of, lake, side)
    there = _rows_in(placed, {row.origin["unit"] for row in rows})
    found = [each for row in rows for each in _same(placed, row, there)]
    if not found:
        return answers, [f"the rows of {of.name} that {stream.name} has followed are not there any more"]
    return _answers(of, lake, side, found, explain)


def _rows_in(placed: UnitTable, units: set[int]) -> list[dict[str, Any]]:
    """The rows of some units of a table."""
    table = delta.open_table(placed.uri)
    if table is None:
        return []
    source = rows_of(table)
    values = [from_micros(unit) for unit in units] if placed.instants else [*units]
    of_units = pc.field(placed.unit).isin(pa.array(values, source.schema.field(placed.unit).type))
    rows = source.filter(of_units) if isinstance(source, pa.Table) else source.to_table(filter=of_units)
    return list(rows.to_pylist())


def _same(placed: UnitTable, row: InputRow, there: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Those of the rows that a row of the stream may be, by its unit, its time and all values that both have."""
    unit = from_micros(row.origin["unit"]) if placed.instants else row.origin["unit"]
    for each in there:
        is_one = each[placed.unit] == unit and (not placed.sign or each[placed.sign] == row.change)
        if is_one and (row.origin["at"] is None or each[placed.at] == row.origin["at"]):
            shared = ((value, each[name]) for name, value in row.values.items() if name in each)
            if all(is_close(one, other, 0.0) or value_as_typed(one) == value_as_typed(other) for one, other in shared):
                yield each


def answers_of(groups: Iterable[MadeOf], what: What, explain: Explain) -> Answers:
    """The answers for the first of some groups of results, and notes on all others and on what cannot be explained."""
    answers, notes = list[Why](), dict[str, None]()
    different = {f"{of.name} {key_as_typed(key)}": (of, key) for of, key in groups}
    for of, key in [*different.values()][:MOST]:
        try:
            answers.append(explain(of, key, what))
        except (OperatorError, ReadError) as refused:
            notes[str(refused)] = None
    left = [*different][MOST:]
    if left:
        notes[f"{counted(len(left), 'more result')}, such as: tidemark why {left[0]}"] = None
    return answers, [*notes]


@singledispatch
def _answers(of: Any, lake: Lake, side: str, rows: Sequence[Row], explain: Explain) -> Answers:
    return [], [f"nobody can tell what rows of {of!r} are made of"]


@_answers.register
def _(of: Operator, lake: Lake, side: str, rows: Sequence[Row], explain: Explain) -> Answers:
    if side not in ("", "current"):
        return [], [f"rows of the side output {side!r} of {of.name} are not explained"]
    what: What = "current" if side == "current" or not of.overlaid else "first"
    return answers_of([(of, {name: row[name] for name in of.explained_by}) for row in rows], what, explain)


@_answers.register
def _(of: Stream, lake: Lake, side: str, rows: Sequence[Row], explain: Explain) -> Answers:
    inputs = tuple(as_input(of, row, of.columns) for row in rows)
    above, notes = upstream_of(lake, of, inputs, explain)
    answer = Why(
        of.name,
        of.name,
        of.kind_name,
        "current",
        {BATCH: ", ".join(map(str, sorted({row.batch for row in inputs})))},
        None,
        f"{counted(len(inputs), 'row')} as they came",
        (),
        (),
        inputs,
        upstream=tuple(above),
    )
    return [answer], notes
