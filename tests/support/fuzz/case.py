"""One case: a pipeline, its rows, and what it leaves with each hostile row held against what it leaves without."""

from __future__ import annotations

import json
import shutil
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from streaming import Delivery, Enriched, Joined, Keyed, Lake
from streaming.audit import audit
from streaming.base.values import python_values
from streaming.declare import Operator
from streaming.service.drain import drain_unpaused
from tests.support.fuzz.drawing import HOSTILE, Drawn, Fuzzed, draw
from tests.support.fuzz.feeds import Batches, HostileRow, as_stored, batches, hostile_row
from tests.support.fuzz.values import Value, ordinary
from tests.support.instants import NOW
from tidemark.testing import correct, land

ROWS = 3
"""Hostile rows that are tried with one pipeline."""
_TRIES = 300
_KEPT = ("_at", "_retracted", "_element", "_error")
_OF_A_RUN = ("origin", "ingested_at", "_result_id")
"""Columns of what is delivered that tell where the files of a run lie, or when it was."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICRO = timedelta(microseconds=1)

Table = list[dict[str, Any]]


@dataclass(frozen=True)
class Fault:
    """What is wrong, with all that is needed to see it again."""

    seed: int
    variant: int | None
    what: str
    pipeline: str
    row: str

    def __str__(self) -> str:
        return (
            f"FAULT in case {self.seed}, hostile row {self.variant}: {self.what}\n  row: {self.row}\n"
            f"  again: python -m tests.support.fuzz --case {self.seed}\n  declaration: {self.pipeline}"
        )


@dataclass
class Tally:
    """What was tried, and what came of it."""

    cases: int = 0
    rows: int = 0
    operators: Counter[str] = field(default_factory=Counter)
    hostilities: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    faults: list[Fault] = field(default_factory=list)


@dataclass
class Ran:
    """What a run left: its lake, what paused, and which corrections failed."""

    lake: Lake
    paused: Mapping[str, Exception] = field(default_factory=dict)
    uncorrected: dict[str, Exception] = field(default_factory=dict)


class Wrong(Exception):
    """What was found does not hold."""


def try_case(spark: SparkSession, seed: int, tally: Tally, rows_tried: int = ROWS) -> list[Fault]:
    """Draw a pipeline, run it without and with each of some hostile rows; what is wrong is counted and returned."""
    random = Random(seed)
    fuzzed = draw(random)
    key = fuzzed.sources[0].types["k"]
    keys = [ordinary(random, key) for _ in range(3)]
    feeds = {source.stream.name: batches(random, source, keys) for source in fuzzed.sources}
    rows = [_hostile(random, fuzzed, keys) for _ in range(rows_tried)]
    tally.cases += 1
    faults: list[Fault] = []

    def fault(variant: int | None, what: str, row: HostileRow | None = None) -> None:
        faults.append(Fault(seed, variant, what, repr(fuzzed.pipeline), "" if row is None else _shown(row)))

    with _lake() as lake:
        try:
            clean = _run(spark, lake, fuzzed, feeds)
            if clean.paused or clean.uncorrected:
                raise Wrong(f"without a hostile row: { {**clean.paused, **clean.uncorrected} }")
        except Exception as error:
            fault(None, _told(error))
            tally.faults += faults
            return faults
        for variant, row in enumerate(rows):
            tally.rows += 1
            tally.hostilities[row.kind] += 1
            tally.operators.update(drawn.kind for drawn in fuzzed.operators)
            with _lake() as other:
                try:
                    ran = _run(spark, other, fuzzed, _with(feeds, row))
                    audited = variant == 0
                    tally.outcomes.update(Judge(spark, fuzzed, clean, ran, feeds, row, audited).judge())
                except Exception as error:
                    fault(variant, _told(error), row)
    tally.faults += faults
    return faults


def _hostile(random: Random, fuzzed: Fuzzed, keys: Sequence[Value]) -> HostileRow:
    """Any hostile row, or as often one that the log takes and for which some operator may fail."""
    row = hostile_row(random, fuzzed.sources, keys)
    if random.random() < 0.5:
        return row
    for _ in range(_TRIES):
        other = hostile_row(random, fuzzed.sources, keys)
        if other.reason is None and any(_may_fail(drawn, other) for drawn in fuzzed.operators):
            return other
    return row


def _may_fail(drawn: Drawn, row: HostileRow) -> bool:
    assert row.row is not None
    reads = row.stream in {stream.name for stream in drawn.operator.reads}
    return reads and drawn.fails(row.stream, row.row) is not False


def _told(error: Exception) -> str:
    if isinstance(error, Wrong):
        return str(error)
    return "".join(traceback.format_exception(error))[-3_000:]


def _shown(row: HostileRow) -> str:
    payload = row.payload if len(row.payload) < 1_500 else row.payload[:1_500] + b"..."
    return f"{row.kind} in {row.column!r} of {row.stream}, batch {row.batch}, line {row.place}: {payload!r}"


@contextmanager
def _lake() -> Iterator[Lake]:
    folder = tempfile.mkdtemp(prefix="tidemark-fuzz-")
    try:
        yield Lake(f"{folder}/lake")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _with(feeds: Mapping[str, Batches], row: HostileRow) -> dict[str, Batches]:
    lines = [list(batch) for batch in feeds[row.stream]]
    lines[row.batch].insert(row.place, row.payload)
    return {**feeds, row.stream: (lines[0], lines[1])}


def _run(spark: SparkSession, lake: Lake, fuzzed: Fuzzed, feeds: Mapping[str, Batches]) -> Ran:
    ran = Ran(lake)
    for batch in range(2):
        for source in fuzzed.sources:
            land(source.stream.source.location(lake), feeds[source.stream.name][batch])
        drained = drain_unpaused(spark, lake, fuzzed.pipeline, end_of_input=batch == 1, now=lambda: NOW)
        ran.paused = drained.paused
    for drawn in fuzzed.operators:
        if drawn.operator.name in ran.paused:
            continue
        try:
            correct(spark, lake, drawn.operator, lambda: NOW)
        except Exception as error:
            ran.uncorrected[drawn.operator.name] = error
    return ran


def _read(uri: str) -> Table:
    if not DeltaTable.is_deltatable(uri):
        return []
    table = DeltaTable(uri).to_pyarrow_table()
    names = [name for name in table.column_names if not name.startswith("_") or name in _KEPT]
    columns = [python_values(table[name]) for name in names]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def _text(value: Any) -> str:
    """A value as a text that is equal for equal values; a double has the digits that no order of a sum changes."""
    if isinstance(value, float):
        return f"{value:.9g}"
    if isinstance(value, Decimal):
        whole, _, digits = f"{value:f}".partition(".")
        return f"{whole}.{digits.rstrip('0')}"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name}: {_text(each)}' for name, each in sorted(value.items(), key=repr))}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_text, value))}]"
    return repr(value)


@dataclass
class Judge:
    """What a run with the hostile row has left, held against what one without has."""

    spark: SparkSession
    fuzzed: Fuzzed
    clean: Ran
    ran: Ran
    feeds: Mapping[str, Batches]
    hostile: HostileRow
    audited: bool
    """Recomputing all laws takes as long as the run itself."""

    def judge(self) -> Counter[str]:
        """What came of the row, counted.

        Raises:
            Wrong: a law is broken.
        """
        valid = self._log()
        outcomes = Counter([f"log: {'valid' if valid else 'rejected'}"])
        for drawn in self.fuzzed.operators:
            outcomes[f"{drawn.kind}: {self._operator(drawn, valid)}"] += 1
        for delivery in self.fuzzed.pipeline.deliveries:
            if delivery.name in self.ran.paused and not self._waits(delivery, valid):
                raise Wrong(f"delivery {delivery.name!r} is paused: {self.ran.paused[delivery.name]}")
            self._delivery(delivery, valid)
        if self.audited:
            self._audit()
        return outcomes

    def _log(self) -> bool:
        """Every row is there once; those that are ordinary as they are without the hostile one, and that as it must."""
        for source in self.fuzzed.sources:
            name = source.stream.name
            before, after = (self._logged(ran.lake, name) for ran in (self.clean, self.ran))
            sent = sum(map(len, self.feeds[name]))
            if len(before) != sent or len(after) != sent + (name == self.hostile.stream):
                raise Wrong(f"log of {name} has {len(after)} rows, and {len(before)} without the hostile one")
            own = [row for row in after if row["uid"] == HOSTILE or self._is_hostile(row)]
            if len(own) != (name == self.hostile.stream):
                raise Wrong(f"the hostile row is {len(own)} times in the log of {name}")
            rest = [row for row in after if row not in own]
            self._equal(f"log of {name}", before, rest, lambda row: False)
            if own:
                self._verdict(own[0])
        return self.hostile.reason is None

    def _logged(self, lake: Lake, name: str) -> Table:
        table = DeltaTable(f"{lake.root}/{name}/log").to_pyarrow_table()
        there = [origin is not None for origin in table["_origin"].to_pylist()]
        names = [
            each for each in table.column_names if not each.startswith("_") or each in ("_rejected", "_raw", "_day")
        ]
        rows = zip(*(python_values(table[each]) for each in names), strict=True)
        return [dict(zip(names, row, strict=True)) for row, kept in zip(rows, there, strict=True) if kept]

    def _is_hostile(self, row: Mapping[str, Any]) -> bool:
        return row["_raw"] is not None and bytes(row["_raw"]) == self.hostile.payload

    def _verdict(self, row: Mapping[str, Any]) -> None:
        reasons = row["_rejected"]
        if (reasons is not None) != (self.hostile.reason is not None):
            raise Wrong(f"expected against the hostile row: {self.hostile.reason!r}; the log says {reasons}")
        if reasons is not None:
            if not self._is_hostile(row):
                raise Wrong(f"the rejected row has another payload: {row['_raw']!r}")
            if not any(str(self.hostile.reason) in reason for reason in reasons):
                raise Wrong(f"expected against the hostile row: {self.hostile.reason!r}; the log says {reasons}")
            return
        assert self.hostile.row is not None
        source = next(each for each in self.fuzzed.sources if each.stream.name == self.hostile.stream)
        for name, of in source.types.items():
            expected, found = as_stored(self.hostile.row[name], of), row[name]
            if _text(found) != _text(expected):
                raise Wrong(f"the log has {name}={found!r:.300}, and the payload {expected!r:.300}")

    def _fails(self, drawn: Drawn, valid: bool) -> bool | None:
        """True where the operator cannot compute the hostile row; None where that is left open."""
        if not valid or self.hostile.stream not in {stream.name for stream in drawn.operator.reads}:
            return False
        assert self.hostile.row is not None
        return drawn.fails(self.hostile.stream, self.hostile.row)

    def _waits(self, delivery: Delivery, valid: bool) -> bool:
        """True of the late rows of a view that cannot compute the hostile one, so nobody knows if it is of them."""
        of = {drawn.operator.name: drawn for drawn in self.fuzzed.operators}.get(delivery.of.name)
        return of is not None and delivery.what == "late" and self._fails(of, valid) is not False

    def _operator(self, drawn: Drawn, valid: bool) -> str:
        name, fails = drawn.operator.name, self._fails(drawn, valid)
        reads = self.hostile.stream in {stream.name for stream in drawn.operator.reads}
        why = self.ran.paused.get(name) or self.ran.uncorrected.get(name)
        # What an enrichment does where a call fails is declared by another name, and is this by default.
        diverts = isinstance(drawn.operator, Enriched) or drawn.operator.on_error == "side"
        # Late rows are left out until they are corrected.
        certain = fails is True and not (isinstance(drawn.operator, Keyed) and drawn.operator.order == "event")
        if why is not None and (fails is False or (diverts and certain)):
            raise Wrong(f"{name} is paused: {why}")
        if why is None and certain and not diverts:
            raise Wrong(f"{name} has to pause for the row, and does not")
        absent = not (valid and reads) or (certain and diverts)
        failed = 0
        for table in drawn.operator.tables:
            if table.is_state or table.suffix == "open":
                continue
            before, after = (_read(ran.lake.table(drawn.operator, table.suffix)) for ran in (self.clean, self.ran))
            what = f"table {drawn.operator.table_name(table.suffix)}"
            if table.suffix == "failed":
                own = [each for each in after if HOSTILE in _text(each)]
                failed = len(own)
                if failed and fails is False:
                    raise Wrong(f"{what} has the row, which can be computed: {own}")
                self._equal(what, before, [each for each in after if each not in own], lambda each: False)
            elif why is not None:
                self._part(what, before, after, self._touched(drawn, before, after))
            else:
                self._equal(
                    what, before, after, (lambda each: False) if absent else self._touched(drawn, before, after)
                )
        if certain and diverts and failed != 1:
            raise Wrong(f"{name}: the row is {failed} times in the side output 'failed'")
        if why is not None:
            return "paused"
        return "side" if failed else "not reached" if absent else "computed"

    def _touched(self, drawn: Drawn, before: Table, after: Table) -> Callable[[Mapping[str, Any]], bool]:
        """Which rows of an operator's tables the hostile one may have a part in."""
        row = self.hostile.row
        assert row is not None
        source = next(each for each in self.fuzzed.sources if each.stream.name == self.hostile.stream)
        key, at = _text(as_stored(row["k"], source.types["k"])), (row["at"] - _EPOCH) // _MICRO
        if drawn.by_uid:
            partners = {
                each[name]
                for each in after
                for name in drawn.by_uid
                if isinstance(drawn.operator, Joined) and HOSTILE in (each[other] for other in drawn.by_uid)
            }
            # A row without a partner has one if the hostile row is it.
            alone = isinstance(drawn.operator, Joined)
            return lambda each: (
                HOSTILE in (values := [each[name] for name in drawn.by_uid])
                or (alone and None in values and (key == self._key_of(values) or bool(partners & {*values})))
            )
        slack = 0 if drawn.within is None else drawn.within // _MICRO

        def is_touched(each: Mapping[str, Any]) -> bool:
            if "k" in each and _text(each["k"]) != key:
                return False
            if drawn.within is None:
                return True
            return bool(each["window_start"] <= at + slack and each["window_end"] >= at - slack)

        return is_touched

    def _key_of(self, uids: list[Any]) -> str | None:
        """The key of the row that one of two uids is of."""
        (uid,) = (each for each in uids if each is not None)
        for source in self.fuzzed.sources:
            for row in self._logged(self.clean.lake, source.stream.name):
                if row["uid"] == uid:
                    return _text(row["k"])
        return None

    def _equal(self, what: str, before: Table, after: Table, touched: Callable[[Mapping[str, Any]], bool]) -> None:
        one, other = (Counter(_text(row) for row in rows if not touched(row)) for rows in (before, after))
        if one != other:
            raise Wrong(f"{what} differs: without the row {[*(one - other)][:4]}, with it {[*(other - one)][:4]}")

    def _part(self, what: str, before: Table, after: Table, touched: Callable[[Mapping[str, Any]], bool]) -> None:
        one, other = (Counter(_text(row) for row in rows if not touched(row)) for rows in (before, after))
        if other - one:
            raise Wrong(f"{what} of a paused operator has {[*(other - one)][:4]}, which it has not without the row")

    def _delivery(self, delivery: Delivery, valid: bool) -> None:
        of = delivery.of
        name = of.name if isinstance(of, Operator) else None
        if {name, delivery.name} & {*self.ran.paused, *self.ran.uncorrected} or delivery.to.kind != "json":
            return
        before, after = (self._lines(ran.lake, delivery) for ran in (self.clean, self.ran))
        if isinstance(of, Operator) and valid:
            drawn = next(each for each in self.fuzzed.operators if each.operator.name == name)
            reads = self.hostile.stream in {stream.name for stream in of.reads}
            if reads and not drawn.by_uid:
                # The audit holds it against the table, which is compared by keys and windows.
                return
            if isinstance(of, Joined):
                return
        missing, added = before - after, after - before
        if delivery.what == "rejected" and not valid and delivery.stream.name == self.hostile.stream:
            if missing or added.total() != 1:
                raise Wrong(f"delivery {delivery.name} lacks {[*missing][:3]}, and has besides {[*added][:3]}")
            return
        if missing or not all(HOSTILE in line for line in added):
            raise Wrong(f"delivery {delivery.name} lacks {[*missing][:3]}, and has besides {[*added][:3]}")

    def _lines(self, lake: Lake, delivery: Delivery) -> Counter[str]:
        files = (
            each for each in Path(lake.path(delivery.to.address)).rglob("*.json") if "_delivered" not in each.parts
        )
        return Counter(
            json.dumps({name: value for name, value in json.loads(line).items() if name not in _OF_A_RUN})
            for each in files
            for line in each.read_text().split("\n")
            if line
        )

    def _audit(self) -> None:
        """The laws hold for all that is not paused."""
        stopped = {*self.ran.paused, *self.ran.uncorrected}
        standing = tuple(each for each in self.fuzzed.pipeline.operators if each.name not in stopped)
        if not standing:
            return
        deliveries = tuple(
            each
            for each in self.fuzzed.pipeline.deliveries
            if each.name not in stopped and not (isinstance(each.of, Operator) and each.of.name in stopped)
        )
        pipeline = replace(self.fuzzed.pipeline, operators=standing, deliveries=deliveries)
        broken = [finding for finding in audit(self.spark, self.ran.lake, pipeline) if finding.broken]
        if broken:
            raise Wrong(f"the audit finds {broken}")
