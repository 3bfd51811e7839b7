"""The gate as metrics: what came of each expectation on the newest version that was judged of its table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime

import pyarrow.compute as pc
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

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


class GateCollector(Collector):
    """Reads the verdicts at each scrape where there are new ones; no Spark is started."""

    def __init__(self, lake: Lake, now: Callable[[], datetime]) -> None:
        self._lake = lake
        self._now = now
        self._version: int | None = None
        self._newest: dict[str, tuple[datetime, dict[str, bool]]] = {}

    def collect(self) -> Iterable[Metric]:
        """One family per metric of `GATE_INSTRUMENTS`."""
        return families(self.samples(), GATE_INSTRUMENTS)

    def samples(self) -> Iterator[Sample]:
        """Everything that is measured, by table and expectation; nothing before the first verdict."""
        for table, (judged_at, met) in sorted(self._read().items()):
            yield _AGE, {"table": table}, max(0.0, (self._now() - judged_at).total_seconds())
            for expectation, passed in sorted(met.items()):
                yield _OUTCOME, {"table": table, "expectation": expectation}, float(passed)

    def _read(self) -> dict[str, tuple[datetime, dict[str, bool]]]:
        stored = delta.open_table(self._lake.verdicts())
        if stored is None or stored.version() == self._version:
            return self._newest
        columns = ["table", "table_id", "version", "expectation", "outcome", "judged_at"]
        rows = delta.contents(stored, columns=columns)
        # Where two have the same time, the one that closes the gate counts.
        rows = rows.append_column("passed", pc.equal(rows["outcome"], "passed"))
        rows = rows.sort_by([("judged_at", "ascending"), ("passed", "descending")])
        newest: dict[str, tuple[tuple[str, int], datetime, dict[str, bool]]] = {}
        for row in rows.to_pylist():
            subject = (row["table_id"], row["version"])
            before = newest.get(row["table"])
            met = before[2] if before is not None and before[0] == subject else {}
            newest[row["table"]] = (subject, row["judged_at"], {**met, row["expectation"]: row["passed"]})
        self._version = stored.version()
        self._newest = {table: (judged_at, met) for table, (_, judged_at, met) in newest.items()}
        return self._newest
