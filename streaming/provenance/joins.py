"""The rows of both sides of which a result of an interval join is made, and the result made again of exactly these."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from functools import reduce
from operator import and_
from typing import Literal

import pyarrow as pa
from pyspark.sql import Column, DataFrame

from streaming.base import BATCH, ORIGIN, F, literal, pc
from streaming.declare import LEFT_AT, RIGHT_AT, Joined, Stream
from streaming.joins import partners_of, rows_of_sides, standing_pairs
from streaming.operators import Progress
from streaming.provenance.answer import TAKEN_BACK, Evidence, InputRow, Question, Row, are_same, evidence_of
from streaming.provenance.changes import changes_of_group
from streaming.provenance.log_rows import Key, LogRows, as_input, frame_of, place_of, rows_near
from streaming.tables import Between, FilesRead

Side = Literal["left", "right"]
_OTHER: Mapping[Side, Side] = {"left": "right", "right": "left"}
_AT: Mapping[Side, str] = {"left": LEFT_AT, "right": RIGHT_AT}
_NO_PARTNER = "no partner of it: keys, or the condition, do not hold"


@evidence_of.register
def _(operator: Joined, question: Question) -> Evidence:
    lake, key = question.lake, question.key
    progress = Progress.as_read(lake, operator)
    logs = {
        side: replace(log, valid=log.valid.filter(pc.field(BATCH) <= progress.through[log.stream.name]))
        for side, log in _logs(operator, question).items()
    }
    again = rows_of_sides(
        operator, {side: frame_of(question, log) for side, log in logs.items()}, progress.watermark
    ).where(reduce(and_, (F.col(name).eqNullSafe(_instant(key[name])) for name in _AT.values())))
    made, standing = _of_key(again, key), None
    if operator.signed:
        standing = _of_key(standing_pairs(again, operator), key)
    results = made if standing is None else standing
    alone = next((side for side in logs if key[_AT[side]] is None), None)
    if alone is not None:
        logs[alone] = _might_have_met(operator, logs, made, alone)
    return Evidence(
        tuple(_inputs(logs, made, results, alone)),
        tuple({name: row[name] for name in operator.columns} for row in results),
        () if alone is None else logs[alone].rejected,
        changes_of_group(lake, operator, key) if operator.overlaid else (),
        files=sum((log.files for log in logs.values()), FilesRead()),
        versions={lake.log(log.stream): log.version for log in logs.values()},
    )


def _logs(operator: Joined, question: Question) -> dict[Side, LogRows]:
    """The rows at the times of the result; of a side that has none in it all rows that might have been partners."""
    lake, key = question.lake, question.key
    streams: dict[Side, Stream] = {"left": operator.left, "right": operator.right}
    logs: dict[Side, LogRows] = {}
    for side, stream in streams.items():
        at = key[_AT[side]]
        if at is not None:
            logs[side] = rows_near(lake, stream, [{stream.event_time: at}], Between(at, at))
    for side, log in [*logs.items()]:
        other = _OTHER[side]
        if other not in logs:
            earliest, latest = (key[_AT[side]] + length for length in partners_of(operator, side))
            keys = _keys_of_partners(operator, side, log.valid.to_pylist())
            logs[other] = rows_near(lake, streams[other], keys, Between(earliest, latest))
    return logs


def _keys_of_partners(operator: Joined, side: Side, rows: Iterable[Row]) -> list[Key]:
    """The keys that partners of rows of a side would have; any, where a column has another type on the other side."""
    streams: dict[Side, Stream] = {"left": operator.left, "right": operator.right}
    types, other = streams[side].types, streams[_OTHER[side]].types
    pairs = [pair if side == "left" else pair[::-1] for pair in operator.keys]
    if any(types.get(own) != other.get(theirs) for own, theirs in pairs):
        return [{}]
    return [{theirs: row[own] for own, theirs in pairs} for row in rows]


def _might_have_met(operator: Joined, logs: Mapping[Side, LogRows], made: Collection[Row], side: Side) -> LogRows:
    """The rows of the side that the results lack which have the keys of what made them: others came then, too."""
    log, own = logs[side], _OTHER[side]
    origins = {place_of(0, row[ORIGIN][own]) for row in made}
    rows = (row for row in logs[own].valid.to_pylist() if place_of(0, row[ORIGIN]) in origins)
    keys = _keys_of_partners(operator, own, rows)
    has_one = [any(key.items() <= row.items() for key in keys) for row in log.valid.to_pylist()]
    return replace(log, valid=log.valid.filter(pa.array(has_one, pa.bool_())))


def _of_key(rows: DataFrame, key: Row) -> list[Row]:
    return [row for row in rows.toArrow().to_pylist() if are_same([{name: row[name] for name in key}], [key])]


def _inputs(
    logs: Mapping[Side, LogRows], made: Collection[Row], results: Collection[Row], alone: Side | None
) -> Iterator[InputRow]:
    """Each row once, in the order of the logs; a log that is joined with itself has it on both sides."""
    told = set[tuple[str, tuple[int, str]]]()
    for side, log in logs.items():
        of_made, of_results = ({place_of(0, row[ORIGIN][side]) for row in rows} for rows in (made, results))
        for row in log.valid.to_pylist():
            origin, place = place_of(0, row[ORIGIN]), (log.stream.name, place_of(row[BATCH], row[ORIGIN]))
            if place in told or (origin not in of_made and side != alone):
                continue
            told.add(place)
            reason = "" if origin in of_results else _NO_PARTNER if side == alone else TAKEN_BACK
            yield as_input(log.stream, row, log.stream.columns, counts=not reason, reason=reason)


def _instant(at: datetime | None) -> Column:
    return F.lit(None) if at is None else literal(at)
