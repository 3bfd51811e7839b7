"""The two rows of which a pair of an interval join is made, and the pair made again of exactly these."""

from __future__ import annotations

from streaming.base import ORIGIN
from streaming.declare import LEFT_AT, RIGHT_AT, Joined, Stream
from streaming.joins import pairs_of_rows
from streaming.provenance.answer import Evidence, Question, Row, are_same, evidence_of
from streaming.provenance.log_rows import as_input, frame_of, rows_near
from streaming.tables import Between, FilesRead


@evidence_of.register
def _(operator: Joined, question: Question) -> Evidence:
    lake, key = question.lake, question.key
    sides = {"left": (operator.left, key[LEFT_AT]), "right": (operator.right, key[RIGHT_AT])}
    if operator.signed or None in (at for _, at in sides.values()):
        alone = "of rows that are taken back, or of a row without a partner, only all rows near it tell"
        return Evidence((), None, why_not=f"{alone}; run `tidemark audit {question.pipeline.name}`")
    keys: dict[Stream, list[Row]] = {}
    for stream, at in sides.values():
        keys.setdefault(stream, []).append({stream.event_time: at})
    logs = {}
    for stream, of_stream in keys.items():
        times = [each[stream.event_time] for each in of_stream]
        logs[stream.name] = rows_near(lake, stream, of_stream, Between(min(times), max(times)))
    found = pairs_of_rows(operator, {name: frame_of(question, log) for name, log in logs.items()})
    again = found.select(*(f"`{name}`" for name in operator.columns)).toArrow().to_pylist()
    pairs = [row for row in again if are_same([{name: row[name] for name in key}], [key])]
    origins = [(sides[side][0].name, row[ORIGIN][side]) for row in pairs for side in sides]
    return Evidence(
        tuple(
            as_input(log.stream, row, log.stream.columns)
            for name, log in logs.items()
            for row in log.valid.to_pylist()
            if (name, row[ORIGIN]) in origins
        ),
        tuple(pairs),
        files=sum((log.files for log in logs.values()), FilesRead()),
        versions={lake.log(log.stream): log.version for log in logs.values()},
    )
