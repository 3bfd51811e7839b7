"""The verdicts table: what came of every expectation on exactly one version of a table, append-only.

It is one of the small tables that Python computes, as those of reports are: they are written without a Spark job.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake

from quality.runner import ExpectationResult, Outcome
from streaming.lake import Lake
from streaming.tables import delta, location, newest_commits

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


def table_name(lake: Lake, uri: str) -> str:
    """The name by which people call the table at `uri`: its path below the lake's root, such as `flights/log`."""
    return uri.removeprefix(f"{lake.root.rstrip('/')}/")


def table_id(table: DeltaTable) -> str:
    """The identity of a table: one that was deleted and rebuilt in its place has another."""
    return str(table.metadata().id)


def write_rows(
    uri: str, rows: pa.Table, mode: Literal["append", "overwrite"], *, metadata: Mapping[str, Any], description: str
) -> int:
    """Write `rows` in one commit that carries `metadata` (JSON values); returns the version it made.

    `append` adds to an append-only table, also columns that it does not have yet; `overwrite` replaces rows and schema.
    Rows stay in their order.
    """
    # Chunks are written side by side, and may change places.
    rows = rows.combine_chunks()
    options: dict[str, Any] = {
        "mode": mode,
        "schema_mode": "overwrite" if mode == "overwrite" else "merge",
        "commit_properties": CommitProperties(custom_metadata={"userMetadata": json.dumps(metadata)}),
    }
    table = delta.open_table(uri)
    if table is None:
        write_deltalake(
            location(uri),
            rows,
            description=description,
            configuration=delta.DELTA_CONFIGURATION | {"delta.appendOnly": str(mode == "append").lower()},
            **options,
        )
    else:
        write_deltalake(table, rows, **options)
    table = delta.open_table(uri)
    assert table is not None, uri
    # Another process may have written since, so the newest version need not be this one.
    own = json.loads(json.dumps(metadata))
    return next(int(commit["version"]) for commit in newest_commits(table) if commit["userMetadata"] == own)
