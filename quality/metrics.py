"""The gate as metrics: what came of each expectation on the newest version that was judged of its table."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from quality.verdicts import table_id
from streaming.lake import Lake
from streaming.service import Instrument, Sample, families
from streaming.tables import delta

_OUTCOME, _AGE = "tidemark_expectation_met", "tidemark_table_judged_age_seconds"

GATE_INSTRUMENTS: Mapping[str, Instrument] = {
    each.name: each
    for each in (
        Instrument(
            _OUTCOME,
            "1 where the newest judged version of a table meets the expectation, 0 where not, or it could not be run.",
            ("table", "expectation"),
        ),
        Instrument(_AGE, "Since a version of the table was judged last.", ("table",), "s"),
    )
}
"""Every metric of the gate, by its name."""

_COLUMNS = ("table", "table_id", "version", "expectation", "outcome", "judged_at")
_MOST_AT_ONCE = 100_000

_log = logging.getLogger("tidemark")


@dataclass(frozen=True)
class _NewestVerdicts:
    """The newest verdicts as of a `version` of their table, whose identity is `table_id`.

    `rows` are the last of each expectation on the version that was judged last of each table, and `met` is what came of
    them, with the time of the last one.
    """

    table_id: str
    version: int
    rows: pa.Table
    met: Mapping[str, tuple[datetime, Mapping[str, bool]]]


class GateCollector(Collector):
    """Reads at each scrape the verdicts that came since the last one; no Spark is started.

    Where they cannot be read, the last ones are told, and the log says so once.
    """

    def __init__(self, lake: Lake, now: Callable[[], datetime]) -> None:
        self._lake = lake
        self._now = now
        self._newest: _NewestVerdicts | None = None
        self._is_readable = True

    def collect(self) -> Iterable[Metric]:
        """One family per metric of `GATE_INSTRUMENTS`."""
        return families(self.samples(), GATE_INSTRUMENTS)

    def samples(self) -> Iterator[Sample]:
        """Everything that is measured, by table and expectation; nothing before the first verdict."""
        for table, (judged_at, met) in sorted(self._read().items()):
            yield _AGE, {"table": table}, max(0.0, (self._now() - judged_at).total_seconds())
            for expectation, passed in sorted(met.items()):
                yield _OUTCOME, {"table": table, "expectation": expectation}, float(passed)

    def _read(self) -> Mapping[str, tuple[datetime, Mapping[str, bool]]]:
        try:
            stored = delta.open_table(self._lake.verdicts())
            self._newest = None if stored is None else _newest_of(stored, self._newest)
            self._is_readable = True
        # Whatever the storage raises: it must not end the scrape of the streams.
        except Exception as error:
            if self._is_readable:
                why = f"{type(error).__name__}: {error}"
                _log.warning("verdicts of the gate cannot be read, so that the last ones are told: %s", why)
            self._is_readable = False
        return {} if self._newest is None else self._newest.met


def _newest_of(stored: DeltaTable, before: _NewestVerdicts | None) -> _NewestVerdicts:
    """The newest verdicts of an open table, of which only files are read that were not there `before`."""
    id_, version = table_id(stored), stored.version()
    known = before if before is not None and before.table_id == id_ else None
    if known is not None and known.version == version:
        return known
    added = None if known is None else delta.appended_rows(stored, known.version, _COLUMNS, _MOST_AT_ONCE)
    if known is None or added is None:
        rows = delta.contents(stored, columns=_COLUMNS)
    else:
        rows = pa.concat_tables([known.rows, added.cast(known.rows.schema)])
    parts = {name: _last_judged(rows.filter(pc.equal(rows["table"], name))) for name in pc.unique(rows["table"])}
    return _NewestVerdicts(
        id_,
        version,
        pa.concat_tables(parts.values()) if parts else rows,
        {name.as_py(): _met(part) for name, part in parts.items()},
    )


def _last_judged(rows: pa.Table) -> pa.Table:
    """The last verdict of each expectation on the version of one table that was judged last, since one on another."""
    # Where two have the same time, the one that closes the gate counts.
    order = pc.sort_indices(
        rows.append_column("passed", _passed(rows)), [("judged_at", "ascending"), ("passed", "descending")]
    )
    rows = rows.take(order)
    subject = ("table_id", "version")
    id_differs, version_differs = (pc.not_equal(rows[name], rows[name][-1]) for name in subject)
    others = pc.indices_nonzero(pc.or_(id_differs, version_differs))
    rows = rows.slice(others[-1].as_py() + 1 if len(others) else 0)
    places = rows.select(["expectation"]).append_column("place", pa.array(range(rows.num_rows)))
    newest = places.group_by("expectation").aggregate([("place", "max")])["place_max"]
    return rows.take(newest.take(pc.sort_indices(newest)))


def _met(rows: pa.Table) -> tuple[datetime, Mapping[str, bool]]:
    """The time of the last verdict, and what each expectation came to, of verdicts by time."""
    outcomes = zip(rows["expectation"].to_pylist(), _passed(rows).to_pylist(), strict=True)
    return rows["judged_at"][-1].as_py(), dict(outcomes)


def _passed(rows: pa.Table) -> pa.ChunkedArray:
    return pc.equal(rows["outcome"], "passed")
