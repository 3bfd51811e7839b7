"""Days, or keys, of which results have changed since a revision: the parts that a model behind them computes again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streaming.base import COPY, DAY, REVISION, SIGN, DeclarationError, ReadError, counted
from streaming.declare import CHANGES, Operator, Pipeline, operator_in_lake
from streaming.lake import Lake
from streaming.reading.conditions import quoted
from streaming.reading.selection import new_database
from streaming.reading.texts import json_lines
from streaming.tables import delta, rows_of

if TYPE_CHECKING:
    from pyarrow import dataset as ds

ADDED, TAKEN_BACK = "added", "taken_back"
"""The columns of what has changed: results that are there now and were not, and results that were there and are not."""


@dataclass(frozen=True)
class Changed:
    """Differences between what is current of an operator at the revision `since` and at `revision`, the newest one.

    `parts` has a row for each combination of values of the columns `by` whose results differ, in their order, then how
    many are `added` and how many `taken_back`. A result that came and went between the two is in neither. Whoever has
    computed these parts again passes `revision` as `since` the next time.
    """

    pipeline: str
    operator: str
    since: int
    revision: int
    by: tuple[str, ...]
    parts: pa.Table = field(repr=False)

    def document(self) -> dict[str, Any]:
        """The answer as `tidemark changed --json` prints it: dates and instants are texts, and `parts` objects."""
        rows = json_lines(self.parts.column_names, [self.parts])
        return {
            "pipeline": self.pipeline,
            "view": self.operator,
            "since": self.since,
            "revision": self.revision,
            "by": list(self.by),
            "parts": [json.loads(row) for row in rows],
        }

    def __str__(self) -> str:
        where = f"{self.pipeline}/{self.operator}, revision {self.revision}"
        what = counted(self.parts.num_rows, "day" if self.by == (DAY,) else "key")
        return f"{where}: {what} changed since revision {self.since}"


def changed(
    pipeline: str | Pipeline,
    operator: str | Operator | None = None,
    *,
    since: int = -1,
    by: Sequence[str] = (),
    lake: Lake | None = None,
) -> Changed:
    """The days, or the values of other columns, whose current results differ from those at the revision `since`.

    `operator` is a view or another operator of the pipeline, its first one if left out. `since` is a revision of
    `<operator>_changes`, such as an earlier answer names; -1 is before the first one, so that everything has changed.
    `by` are columns of the results; left out, it is their day, which is null where results have no time. No Spark is
    started.

    Raises:
        DeclarationError: there is no such pipeline or operator, or it only ever adds rows.
        ReadError: nothing is published yet, there is no such revision or column, or nobody can tell any more what
            stood at that revision; the text says what to do.
    """
    of, asked, there = operator_in_lake(pipeline, operator, lake)
    if not asked.published:
        raise DeclarationError(
            f"{asked.kind_name} {asked.name!r} changes no result: it only adds rows.",
            f"Read those of later batches: tidemark.read({of.name!r}, {asked.name!r}, where='_batch > ...').",
            operator=asked.name,
        )
    table = delta.open_table(there.table(asked, CHANGES))
    if table is None:
        raise ReadError(
            f"nothing of {asked.name!r} is published yet in the lake {there.root!r}.",
            f"Run `tidemark run {of.name}`.",
            operator=asked.name,
        )
    # What is imported here imports Spark, which takes a second: importing this module should not.
    from streaming.changes import first_revision, revision_of

    first, newest = first_revision(table), revision_of(table)
    _check_since(asked, since, first, newest)
    rows = rows_of(table)
    chosen = _chosen_by(asked, by, rows.schema)
    parts = _parts(rows, (*asked.columns, DAY, COPY), chosen, since)
    return Changed(of.name, asked.name, since, newest, chosen, parts)


def _check_since(operator: Operator, since: int, first: int, newest: int) -> None:
    if not -1 <= since <= newest:
        raise ReadError(
            f"there is no revision {since} of {operator.name!r}; there are those up to {newest}.",
            "Give one that an earlier answer has named, or -1 for everything.",
            operator=operator.name,
            value=since,
        )
    if -1 < since < first - 1:
        raise ReadError(
            f"nobody can tell what stood of {operator.name!r} at revision {since}: its changes begin with revision "
            f"{first}, which holds all that was current then.",
            f"Compute whatever follows from it as a whole, and give {newest} the next time.",
            operator=operator.name,
            value=since,
        )


def _chosen_by(operator: Operator, by: Sequence[str], schema: pa.Schema) -> tuple[str, ...]:
    offered = tuple(name for name in (DAY, *operator.columns) if name in schema.names)
    for name in by:
        if name not in offered:
            raise ReadError(
                f"{operator.name!r} has no column {name!r} to be told by; it has: {', '.join(offered)}.",
                operator=operator.name,
                value=name,
                choices=offered,
            )
    return tuple(dict.fromkeys(by)) or (DAY,)


def _parts(rows: pa.Table | ds.Dataset, values: Sequence[str], by: Sequence[str], since: int) -> pa.Table:
    """The parts of what changed: a result counts once by all its values, whatever came and went between."""
    with new_database() as database:
        database.register("changes", rows)
        result = ", ".join(quoted(name) for name in dict.fromkeys(values) if name in rows.schema.names)
        part = ", ".join(quoted(name) for name in by)
        net = (
            f'select {result}, sum("{SIGN}") as net from changes where "{REVISION}" > {since} '
            f'group by {result} having sum("{SIGN}") <> 0'
        )
        counts = (
            f"cast(coalesce(sum(net) filter (net > 0), 0) as bigint) as {ADDED}, "
            f"cast(coalesce(-sum(net) filter (net < 0), 0) as bigint) as {TAKEN_BACK}"
        )
        order = ", ".join(f"{quoted(name)} nulls first" for name in by)
        query = f"select {part}, {counts} from ({net}) group by {part} order by {order}"
        table: pa.Table = database.sql(query).to_arrow_table()
        return table
