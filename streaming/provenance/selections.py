"""The rows of the logs that a selected row is made of, and what is selected of them again, by its function, too."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException

from streaming.base import AT, BATCH, ORIGIN, is_same, pc
from streaming.declare import Selected, Stream
from streaming.operators import Progress
from streaming.provenance.answer import Evidence, Question, evidence_of
from streaming.provenance.changes import changes_of_group
from streaming.provenance.log_rows import LogRows, as_input, frame_of, place_of, rows_near
from streaming.selected import selected_again, selected_rows
from streaming.tables import Between, FilesRead

_Origin = tuple[str, str]
"""The name of a stream, and where a row of it is from, as text."""


@evidence_of.register
def _(operator: Selected, question: Question) -> Evidence:
    lake, key = question.lake, question.key
    through = Progress.as_read(lake, operator).through
    logs = [_rows_at(question, operator, stream, through[stream.name]) for stream in operator.reads]
    evidence = Evidence(
        (),
        None,
        changes=changes_of_group(lake, operator, key) if operator.signed else (),
        files=sum((log.files for log in logs), FilesRead()),
        versions={lake.log(log.stream): log.version for log in logs},
    )
    again = selected_again(operator, {log.stream.name: frame_of(question, log) for log in logs})
    try:
        rows = (selected_rows(again, operator) if operator.signed else again).toArrow().to_pylist()
    except PySparkException as error:
        inputs = tuple(as_input(log.stream, row, log.stream.columns) for log in logs for row in log.valid.to_pylist())
        return replace(evidence, inputs=inputs).without(f"its SQL or function raised: {_told(error)}")
    # Of a row that becomes several, those that are meant.
    meant = [row for row in rows if all(is_same(row[name], key[name]) for name in key)]
    made_of = {*_origins(operator, meant)}
    return replace(
        evidence,
        inputs=tuple(
            as_input(log.stream, row, log.stream.columns)
            for log in logs
            for row in log.valid.to_pylist()
            if _origin(log.stream, row[ORIGIN]) in made_of
        ),
        recomputed=tuple({name: row[name] for name in operator.columns} for row in meant),
    )


def _rows_at(question: Question, operator: Selected, stream: Stream, through: int) -> LogRows:
    """The rows of a stream's log that the results are made of; where some are taken back, all rows of their time."""
    times = {row[AT] for row in question.stored}
    log = rows_near(
        question.lake, stream, [{stream.event_time: time} for time in times], Between(min(times), max(times))
    )
    log = replace(log, valid=log.valid.filter(pc.field(BATCH) <= through))
    if operator.signed:
        return log
    made_of = {*_origins(operator, question.stored)}
    batches = {row[BATCH] for row in question.stored} if len(operator.reads) == 1 else None
    return replace(log, valid=log.valid.filter(pa.array(_are_of(log, made_of, batches), pa.bool_())))


def _are_of(log: LogRows, origins: Collection[_Origin], batches: Collection[int] | None) -> Iterator[bool]:
    """True for each row of a log that is of one of these places; of several logs nobody has written down the batch."""
    for row in log.valid.select([BATCH, ORIGIN]).to_pylist():
        yield _origin(log.stream, row[ORIGIN]) in origins and (batches is None or row[BATCH] in batches)


def _origins(operator: Selected, rows: Iterable[Mapping[str, Any]]) -> Iterator[_Origin]:
    """Where the rows of results are from; of several streams each has a field of its own, null but for one."""
    for row in rows:
        origin = row[ORIGIN]
        by_stream = {operator.reads[0].name: origin} if len(operator.reads) == 1 else origin
        yield from ((name, place_of(0, each)[1]) for name, each in by_stream.items() if each is not None)


def _origin(stream: Stream, origin: Any) -> _Origin:
    return stream.name, place_of(0, origin)[1]


def _told(error: PySparkException) -> str:
    """The last line of Spark's text with an error in it, in which the traces of its workers end."""
    lines = [line.strip() for line in str(error).splitlines() if "Error" in line]
    return lines[-1] if lines else str(error).partition("\n")[0]
