"""The verdicts table: what came of every expectation on exactly one version of a table, append-only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

import pyarrow as pa

from quality.runner import ExpectationResult, Outcome
from quality.tables import write_rows
from streaming.lake import Lake
from streaming.tables import delta

_SCHEMA = pa.schema(
    [
        ("table", pa.string()),
        ("table_id", pa.string()),
        ("version", pa.int64()),
        ("expectation", pa.string()),
        ("definition", pa.string()),
        ("outcome", pa.string()),
        ("observed", pa.string()),
        ("run_id", pa.string()),
        ("judged_at", pa.timestamp("us", "UTC")),
        ("value", pa.float64()),
    ]
)


@dataclass(frozen=True)
class Verdict:
    """One row: `outcome` of `expectation` on `version` of `table` (`flights/log`), as run `run_id` saw it.

    `table_id` is Delta's identity of the table, empty where it did not exist yet; `definition` is exactly what was
    checked, `observed` the result in words and `value` the number in it, null where there is none.
    """

    table: str
    table_id: str
    version: int
    expectation: str
    definition: str
    outcome: Outcome
    observed: str
    run_id: str
    judged_at: datetime
    value: float | None = None


@dataclass(frozen=True)
class Subject:
    """The subject of verdicts: one version of one table."""

    table: str
    table_id: str
    version: int


def verdicts_on(
    subject: Subject, results: Iterable[ExpectationResult], run_id: str, judged_at: datetime
) -> list[Verdict]:
    """The results of one suite run as verdicts."""
    return [
        Verdict(
            subject.table,
            subject.table_id,
            subject.version,
            result.expectation.name,
            result.expectation.definition,
            result.outcome,
            result.observed,
            run_id,
            judged_at,
            result.value,
        )
        for result in results
    ]


def store_verdicts(lake: Lake, verdicts: Sequence[Verdict]) -> None:
    """Append the verdicts of one suite run in one commit."""
    rows = pa.Table.from_pylist([asdict(verdict) for verdict in verdicts], schema=_SCHEMA)
    run_ids = sorted({verdict.run_id for verdict in verdicts})
    write_rows(
        lake.verdicts(),
        rows,
        "append",
        metadata={"run_ids": run_ids},
        description="What came of every expectation on exactly one version of a table.",
    )


def all_verdicts(lake: Lake, table: str, version: int | None = None) -> list[Verdict]:
    """The stored verdicts on `table`, of one `version` or of all, oldest first; none before the first suite run."""
    stored = delta.open_table(lake.verdicts())
    if stored is None:
        return []
    filters = [("table", "=", table)] + ([] if version is None else [("version", "=", version)])
    rows = delta.contents(stored, filters).to_pylist()
    # Where two have the same time, the one that closes the gate counts.
    return sorted((Verdict(**row) for row in rows), key=lambda row: (row.judged_at, row.outcome != "passed"))


def verdicts_for(lake: Lake, table: str, version: int) -> dict[str, Verdict]:
    """The latest verdict per expectation on exactly this version of `table`, such as `flights/log`."""
    return {verdict.expectation: verdict for verdict in all_verdicts(lake, table, version)}
