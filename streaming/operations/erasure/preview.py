"""The preview of an erasure, counted beforehand."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import SparkSession

from streaming.declare import Pipeline
from streaming.lake import Lake
from streaming.operations.erasure.person import Person
from streaming.operations.erasure.proof import tables_of
from streaming.operations.erasure.rows import (
    WITHOUT_ROWS,
    affected,
    can_be_kept,
    check_known,
    in_logs,
    unread_rejected,
)
from streaming.operations.savepoint import savepoints
from streaming.tables import delta, to_be_taken


@dataclass(frozen=True)
class ErasurePreview:
    """The preview of an erasure: rows by table, operators built anew, views kept, and savepoints in the way.

    `unread`: rejected payloads of each stream without a readable field of that name, in which the value alone tells.
    """

    rows: dict[str, int]
    rebuilt: tuple[str, ...]
    kept: tuple[str, ...]
    savepoints: tuple[str, ...]
    unread: dict[str, int]


def preview_erasure(
    spark: SparkSession, lake: Lake, pipeline: Pipeline, person: Person, *, keep_numbers: bool = False
) -> ErasurePreview:
    """Count what is there of a person; changes nothing, and the pipeline may run.

    Raises:
        ErasureError: no stream has the column.
    """
    check_known(pipeline, person)
    occurrences = in_logs(spark, lake, pipeline, person)
    rows = {f"{each.stream.name}/log": each.valid + each.rejected for each in occurrences}
    for table in tables_of(lake, pipeline):
        if table not in rows and table.rpartition("/")[2] not in WITHOUT_ROWS:
            uri = lake.path(table)
            if person.is_told_by(delta.read(spark, uri)):
                rows[table] = to_be_taken(spark, uri, person.split()).rows
    rebuilt = affected(pipeline, [each.stream.name for each in occurrences if each.valid])
    kept = [operator.name for operator in rebuilt if keep_numbers and can_be_kept(lake, operator, person)]
    return ErasurePreview(
        {table: count for table, count in rows.items() if count},
        tuple(operator.name for operator in rebuilt if operator.name not in kept),
        tuple(kept),
        tuple(each.name for each in savepoints(lake, pipeline)),
        unread_rejected(spark, lake, pipeline, person),
    )
