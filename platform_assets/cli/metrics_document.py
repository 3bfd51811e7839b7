"""The document that `tidemark metrics` prints with `--json`; see `documents` on what the fields promise."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from pydantic import BaseModel

from platform_assets.cli.documents import Document
from quality import GATE_INSTRUMENTS
from streaming.service import INSTRUMENTS, Overview, Sample, samples


class SampleDocument(BaseModel):
    """One value, as Prometheus would scrape it; `meaning` says what it is."""

    name: str
    labels: dict[str, str]
    value: float
    meaning: str


class MetricsDocument(Document):
    """`tidemark metrics --json`."""

    lake: str
    at: datetime
    metrics: list[SampleDocument]

    @classmethod
    def of(
        cls, lake: str, at: datetime, overviews: Sequence[Overview], of_gate: Iterable[Sample] = ()
    ) -> MetricsDocument:
        """The document of all that is measured of streams and of the gate at an instant."""
        measurements = (*(sample for overview in overviews for sample in samples(overview, at)), *of_gate)
        meanings = {name: each.meaning for name, each in {**INSTRUMENTS, **GATE_INSTRUMENTS}.items()}
        values = [
            SampleDocument(name=name, labels=labels, value=value, meaning=meanings[name])
            for name, labels, value in measurements
        ]
        return cls(lake=lake, at=at, metrics=values)
