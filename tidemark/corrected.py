"""The current results of a keyed function that is played: late rows put in their place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from streaming.base import from_micros, instant_of, read_back, to_micros
from streaming.declare import Keyed
from streaming.keyed import NEVER, Fold, Output, PinnedRules, TimedRow, late_sessions


class Come(NamedTuple):
    """A row that has come: its event time, its stamp, what it holds, and the batch and the stream it is of."""

    at: int
    stamp: int
    row: Any
    batch: int
    of: int


def corrected(
    keyed: Keyed,
    outputs: Mapping[str, Sequence[tuple[Any, ...]]],
    come: Iterable[Come],
    clock: int,
    rules: PinnedRules | None,
) -> dict[str, list[tuple[Any, ...]]]:
    """The `outputs` of steps up to the `clock`, by time, once activity sessions with late rows are computed again."""
    assert keyed.idle_micros is not None
    by_key: dict[tuple[Any, ...], list[Come]] = {}
    for entry in sorted((entry for entry in come if entry.at < clock), key=lambda entry: (entry.at, entry.of)):
        by_key.setdefault(key_of(keyed, entry), []).append(entry)
    timed = (TimedRow(key, each.at, each.at < each.stamp) for key, rows in by_key.items() for each in rows)
    current = {to: list(rows) for to, rows in outputs.items()}
    keys = len(keyed.by)
    for session in late_sessions(keyed.idle_micros, timed):
        fold = Fold(keyed, rules)
        key = fold.begin(session.key)
        for at, _, row, batch, of in by_key[session.key]:
            if session.start <= at < session.end:
                fold.row(key, at, NEVER, row, batch, of)
        fold.advance(key, clock)
        for to, rows in current.items():
            kept = [row for row in rows if row[:keys] != session.key or not session.replaces(to_micros(row[keys]))]
            again = [plain(keyed, each) for each in fold.outputs if each.to == to and session.replaces(each.at)]
            current[to] = kept + again
    return {to: sorted(rows, key=lambda row: row[keys]) for to, rows in current.items()}


def key_of(keyed: Keyed, come: Come) -> tuple[Any, ...]:
    """The key of a row."""
    columns = keyed.streams[come.of].columns
    return tuple(come.row[columns.index(name)] for name in keyed.by)


def plain(keyed: Keyed, output: Output) -> tuple[Any, ...]:
    """A row of an output as it comes out of its table, with instants for times."""
    kinds = [field.type for field in keyed.output_schemas[output.to]]
    values = (
        instant_of(value) if pa.types.is_timestamp(kind) and value is not None else read_back(value, kind)
        for kind, value in zip(kinds, output.values, strict=True)
    )
    return (*output.key, from_micros(output.at), *values)
