"""The rows of its sources that a key of an SQL view depends on, and its rows computed again from exactly these."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from streaming.base import NoVersionError
from streaming.declare import Operator, Stream, View
from streaming.provenance.answer import Evidence, InputRow, MadeOf, Question, evidence_of
from streaming.provenance.changes import changes_of_group
from streaming.provenance.log_rows import as_frame, as_input, read_by_spark
from streaming.reading import key_as_typed
from streaming.sql import GLOBAL
from streaming.sqlviews import MARK, NamedRows, Position, Relation, relations_of
from streaming.tables import delta


@evidence_of.register
def _(operator: View, question: Question) -> Evidence:
    lake, query, spark = question.lake, operator.query, question.spark()
    at = Position.of(operator, delta.open_table(lake.table(operator)))
    streams, others = relations_of(lake, operator)
    relations = {each.name: each for each in (*streams, *others)}
    with NamedRows(spark) as frames:
        try:
            rows = {name: relations[name].marked(spark, at[name]) for name in query.relations}
        except NoVersionError as gone:
            return Evidence((), None, why_not=str(gone))
        keys = frames.add(_key_of(question, operator, rows, frames))
        plain = {name: frames.add(frame.drop(*_beside(relations[name], frame))) for name, frame in rows.items()}
        found: dict[str, pa.Table] = {}
        for name, frame in rows.items():
            reaching = query.reaching(name, frames.add(frame), plain.__getitem__, keys, MARK)
            found[name] = frame.join(frames.query(reaching), MARK, "left_semi").select(*frame.columns).toArrow()
        left = {name: frames.add(as_frame(question, table, rows[name].schema)) for name, table in found.items()}
        recomputed = frames.query(
            query.restricted(left.__getitem__, keys) if query.key else query.text(left.__getitem__)
        )
        result = tuple(recomputed.select(*(f"`{name}`" for name in operator.columns)).toArrow().to_pylist())
    sources: Mapping[str, Any] = {each.name: each for each in operator.of}
    inputs = [row for name, table in found.items() for row in _inputs(sources[name], relations[name], table)]
    made_of = tuple(_made_of(sources, found))
    notes = ["the rows are all that the key may depend on, so that some may change nothing if they were others"]
    changes = changes_of_group(lake, operator, question.key) if query.key else ()
    versions = {lake.log(stream): delta.opened(lake.log(stream)).version() for stream in operator.follows}
    of_logs = {
        lake.log(each): rows[each.name] for each in operator.of if isinstance(each, Stream) and each.name in rows
    }
    return Evidence(
        tuple(inputs),
        result,
        changes=changes,
        notes=tuple(notes),
        files=read_by_spark(of_logs.values(), of_logs),
        versions=versions,
        made_of=made_of,
    )


def _key_of(question: Question, view: View, rows: Mapping[str, DataFrame], frames: NamedRows) -> DataFrame:
    """The one key, with the types that the query gives its columns."""
    spark = question.spark()
    if not view.query.key:
        return spark.createDataFrame([(1,)], f"{GLOBAL} int")
    none = {name: frames.add(frame.limit(0)) for name, frame in rows.items()}
    types = frames.query(view.query.text(none.__getitem__)).schema
    schema = StructType([types[name] for name in view.query.key])
    for field in schema:
        field.nullable = True
    return spark.createDataFrame([tuple(question.key[name] for name in view.query.key)], schema)


def _beside(relation: Relation, frame: DataFrame) -> list[str]:
    """The columns that a relation has besides those that the query may name."""
    return [name for name in frame.columns if name not in relation.columns]


def _inputs(source: Any, relation: Relation, rows: pa.Table) -> Iterator[InputRow]:
    for row in rows.to_pylist():
        values = {name: row[name] for name in relation.columns}
        if isinstance(source, Stream):
            yield as_input(source, row, source.columns)
        else:
            columns = source.explained_by if isinstance(source, Operator) else relation.columns
            own = {name: row[name] for name in columns}
            yield InputRow(relation.name, key_as_typed(own), own, -1, values)


def _made_of(sources: Mapping[str, Any], found: Mapping[str, pa.Table]) -> Iterator[MadeOf]:
    """The groups of results of operators that the rows are."""
    for name, table in found.items():
        source = sources[name]
        if isinstance(source, Operator):
            columns = source.explained_by
            groups = {json.dumps(each, default=str): each for each in table.select(list(columns)).to_pylist()}
            yield from ((source, group) for group in groups.values())
