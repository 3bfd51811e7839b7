"""Events of NEXMark as files, and what a query has made of them, so that two engines can be compared."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from tests.support.nexmark import AUCTION, BID, PERSON, Shape, events

Results = frozenset[tuple[Any, ...]]

QUERIES = ("q4", "q5", "q7")
RESULTS: dict[str, tuple[str, ...]] = {
    "q4": ("id", "final"),
    "q5": ("auction", "num", "window_end"),
    "q7": ("auction", "bidder", "price", "dateTime", "extra"),
}
"""The columns of each query that is compared."""


@dataclass(frozen=True)
class Landed:
    """The events of a shape on this machine: in files of a batch each, and each kind in one file, in order."""

    folder: Path
    rows: dict[str, int]
    """The number of events of each kind."""

    @property
    def batches(self) -> Path:
        """Below it a folder for each kind, with files in the order in which they come."""
        return self.folder / "batches"

    @property
    def ordered(self) -> Path:
        """Below it a folder for each kind, with one file: Flink reads several in no order."""
        return self.folder / "ordered"

    def read_by(self, query: str) -> int:
        """The number of events that a query reads."""
        return self.rows[BID] + (self.rows[AUCTION] if query == "q4" else 0)


def landed(folder: Path, number: int, a_batch: int) -> Landed:
    """So many events, written if they are not there yet."""
    there = folder / f"{number}-{a_batch}"
    counted = there / "rows.json"
    if not counted.exists():
        shutil.rmtree(there, ignore_errors=True)
        rows: Counter[str] = Counter()
        batch: list[tuple[str, str]] = []
        for event in events(Shape(number, disorder=1_000)):
            batch.append(event)
            if len(batch) == a_batch:
                rows += _written(there, batch)
                batch = []
        rows += _written(there, batch)
        counted.write_text(json.dumps(rows))
    return Landed(there, json.loads(counted.read_text()))


def _written(folder: Path, batch: list[tuple[str, str]]) -> Counter[str]:
    rows = Counter(kind for kind, _ in batch)
    for kind in (PERSON, AUCTION, BID):
        text = "".join(f"{line}\n" for each, line in batch if each == kind)
        batches, ordered = folder / "batches" / kind, folder / "ordered" / kind
        batches.mkdir(parents=True, exist_ok=True)
        ordered.mkdir(parents=True, exist_ok=True)
        if text:
            (batches / f"{len([*batches.iterdir()]):05}.json").write_text(text)
            with (ordered / "all.json").open("a") as file:
                file.write(text)
    return rows


def results_of_table(uri: str, query: str) -> Results:
    """The current results of a query, of a table of Tidemark."""
    table = DeltaTable(uri).to_pyarrow_table(columns=[*RESULTS[query]])
    return frozenset(zip(*(map(_plain, column.to_pylist()) for column in table.columns), strict=True))


def results_of_changes(folder: Path, query: str) -> Results:
    """The current results of a query, of the changes that Flink has written as Debezium's events.

    Raises:
        ValueError: a row was taken back that had not been added.
    """
    standing: Counter[tuple[Any, ...]] = Counter()
    for path in folder.rglob("part-*"):
        with path.open() as lines:
            for line in lines:
                event = json.loads(line)
                for side, sign in (("before", -1), ("after", 1)):
                    if event[side] is not None:
                        standing[_row(event[side], RESULTS[query])] += sign
    negative = next((row for row, times in standing.items() if times < 0), None)
    if negative is not None:
        raise ValueError(f"{query} of Flink has taken back {negative}, which was not there")
    return frozenset(row for row, times in standing.items() if times)


def _row(values: dict[str, Any], columns: Iterable[str]) -> tuple[Any, ...]:
    return tuple(
        _plain(datetime.fromisoformat(values[name])) if name in ("dateTime", "window_end") else values[name]
        for name in columns
    )


def _plain(value: Any) -> Any:
    """An instant as milliseconds since the epoch, UTC where it has no zone."""
    if not isinstance(value, datetime):
        return value
    return round((value.replace(tzinfo=None) - datetime(1970, 1, 1)).total_seconds() * 1000)
