"""The changes of what is current of one group, each with the late rows that it was the first to count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from streaming.base import EPOCH, MILLISECOND, REASON, REVISION, SIGN, is_same
from streaming.changes import ChangePosition
from streaming.declare import CHANGES, CORRECTIONS, Operator
from streaming.lake import Lake
from streaming.operators import generation_of, open_side
from streaming.provenance.answer import Change, InputRow, Row, values_of
from streaming.provenance.days import day_of_key
from streaming.reading import StoredRows, key_as_texts, rows_of_key
from streaming.tables import delta, newest_commits, rows_of

_CORRECTIONS = "corrections"


def changes_of_group(lake: Lake, operator: Operator, key: Row, late: Sequence[InputRow] = ()) -> tuple[Change, ...]:
    """Every change that was told of a group of results, oldest first; none of a lake as of older batches."""
    table = None if lake.cut is not None or not operator.published else delta.open_table(lake.table(operator, CHANGES))
    if table is None:
        return ()
    rows, day = rows_of(table), day_of_key(operator, key)
    stored = StoredRows(rows, tuple(rows.schema.names))
    # Nobody writes lists, structs, maps or bytes as one text that stands for them everywhere.
    by_text = {name: value for name, value in key.items() if _has_text(rows.schema.field(name).type)}
    near = rows_of_key(stored, key_as_texts(by_text), day).to_pylist()
    of_key = [row for row in near if all(is_same(row[name], key[name]) for name in key)]
    revisions = sorted({row[REVISION] for row in of_key})
    commits = _looks(table, revisions)
    corrected = {} if day is None or not operator.corrected else _corrections_of(lake, operator, day)
    changes, before = [], dict[str, int]()
    for revision in revisions:
        mine = [row for row in of_key if row[REVISION] == revision]
        was, now = (values_of(operator, [row for row in mine if row[SIGN] == sign]) for sign in (-1, 1))
        reason = next((row[REASON] for row in mine if row[SIGN] > 0), mine[0][REASON])
        commit = commits.get(revision, {})
        seen = commit.get("userMetadata", {}).get(_CORRECTIONS, delta.BEFORE)
        correction = next((each for each in corrected if each <= seen), None) if reason == "correction" else None
        through, corrected_at = corrected[correction] if correction is not None else ({}, None)
        causes = [
            row.place
            for row in late
            if row.stream in through and before.get(row.stream, -1) < row.batch <= through[row.stream]
        ]
        before = {**before, **through}
        changes.append(
            Change(
                revision,
                reason,
                was,
                now,
                _instant(commit.get("timestamp")),
                corrected_at,
                through,
                tuple(dict.fromkeys(causes)),
            )
        )
    return tuple(changes)


def newest_look(lake: Lake, operator: Operator) -> ChangePosition | None:
    """The position of the newest look at what is current; None where nobody tells changes of the operator as it is."""
    at = ChangePosition.of(delta.open_table(lake.table(operator, CHANGES)))
    # Positions of an older generation say nothing of tables that were built anew since.
    is_told = at.revision >= 0 and at.of_generation == generation_of(delta.open_table(lake.table(operator)))
    return at if is_told else None


def corrections_of_look(lake: Lake, operator: Operator, look: ChangePosition | None) -> DeltaTable | None:
    """The corrections that a look has seen, or without one those that are there; None where there are none."""
    if look is not None and look.corrections == delta.BEFORE:
        return None
    return open_side(lake, operator, CORRECTIONS, None if look is None else look.corrections)


def _has_text(type_: pa.DataType) -> bool:
    return not (pa.types.is_nested(type_) or pa.types.is_binary(type_) or pa.types.is_large_binary(type_))


def _looks(table: Any, revisions: Sequence[int]) -> dict[int, Mapping[str, Any]]:
    """The commits of some revisions of a table of changes, as far as their entries are still there."""
    found: dict[int, Mapping[str, Any]] = {}
    for commit in newest_commits(table) if revisions else ():
        says = commit["userMetadata"]
        number = says.get("revision") if isinstance(says, dict) else None
        if isinstance(number, int) and number in revisions:
            found.setdefault(number, commit)
        if len(found) == len(revisions):
            break
    return found


def _corrections_of(lake: Lake, operator: Operator, day: date) -> dict[int, tuple[Mapping[str, int], datetime | None]]:
    """By version of the corrections, newest first: through which batches a day was corrected then, and when."""
    table = open_side(lake, operator, CORRECTIONS)
    found: dict[int, tuple[Mapping[str, int], datetime | None]] = {}
    for commit in () if table is None else newest_commits(table):
        says = commit["userMetadata"]
        days = says.get("through") if isinstance(says, dict) else None
        through = days.get(day.isoformat()) if isinstance(days, dict) else None
        if isinstance(through, dict):
            found[commit["version"]] = (through, _instant(commit.get("timestamp")))
    return found


def _instant(millis: object) -> datetime | None:
    return (EPOCH + millis * MILLISECOND).astimezone(UTC) if isinstance(millis, int) else None
