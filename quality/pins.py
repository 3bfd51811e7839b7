"""Pins: the exact versions of a pipeline's tables that are judged, let through the gate, and reported."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from quality.errors import QualityError
from quality.find import (
    logs_read,
    operators_read,
    optional_roles,
    result_tables,
    role_of_log,
    suites_for,
)
from quality.verdicts import Subject, table_id, table_name
from streaming.base import NotBuiltYet
from streaming.declare import Operator, Pipeline, Stream
from streaming.lake import Lake
from streaming.log import version_after
from streaming.operators import open_beside, runtime_of
from streaming.tables import delta


@dataclass(frozen=True)
class Pin:
    """One version of one table: its `role` in the pipeline, its name (`flights/log`), place, identity and version."""

    role: str
    table: str
    uri: str
    table_id: str
    version: int

    @property
    def subject(self) -> Subject:
        """The subject of verdicts on this pin."""
        return Subject(self.table, self.table_id, self.version)

    @property
    def is_replaced(self) -> bool:
        """True if another table lies there by now, so that the version of that number is not the one that was pinned.

        Raises:
            DeltaError: there is no such version.
        """
        table = delta.open_table(self.uri, self.version)
        return table is not None and table_id(table) != self.table_id

    def read(self, spark: SparkSession) -> DataFrame:
        """Exactly this version as a batch frame."""
        return delta.read(spark, self.uri, self.version)


@dataclass(frozen=True)
class Pins:
    """The pinned tables of a pipeline, the logs last; `absent` are those not there yet that may be absent, by role."""

    pipeline: str
    tables: tuple[Pin, ...]
    absent: tuple[str, ...] = ()

    def pin(self, role: str) -> Pin | None:
        """The pin of a role, or None where that table is absent.

        Raises:
            QualityError: the role is neither pinned nor absent.
        """
        for pin in self.tables:
            if pin.role == role:
                return pin
        if role in self.absent:
            return None
        roles = ", ".join((*(pin.role for pin in self.tables), *self.absent))
        raise QualityError(
            f"{role!r} is not pinned for pipeline {self.pipeline!r}; pinned are: {roles}.",
            "Pin again.",
            value=role,
            pipeline=self.pipeline,
        )

    def are_older_than(self, others: Pins) -> bool:
        """True if they pin an older version than the others of some table, and nothing that the others do not."""
        there = {pin.table_id: pin.version for pin in others.tables}
        ahead = [pin.version - there[pin.table_id] if pin.table_id in there else 1 for pin in self.tables]
        return min(ahead, default=0) < 0 >= max(ahead, default=0)

    def versions(self) -> dict[str, int | None]:
        """Version per role, null for what is absent: for people and for a commit's metadata."""
        return {**{pin.role: pin.version for pin in self.tables}, **dict.fromkeys(self.absent)}

    def to_json(self) -> dict[str, Any]:
        """The pins as JSON values, to hand them to another process."""
        return {"pipeline": self.pipeline, "tables": [asdict(pin) for pin in self.tables], "absent": list(self.absent)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Pins:
        """The inverse of `to_json`."""
        return cls(value["pipeline"], tuple(Pin(**pin) for pin in value["tables"]), tuple(value["absent"]))


def pin(
    lake: Lake,
    pipeline: Pipeline,
    through: Mapping[str, int] | None = None,
    reads: Collection[Operator | Stream] = (),
) -> Pins:
    """The newest versions of logs and of all that is current; of the logs as they were after the batches `through`.

    Only of the operators and streams that somebody `reads`, where any is named. Of a lake with a cut those that readers
    see there.

    Raises:
        NotBuiltYet: there is no log or no view yet, so nothing can be reported.
        SuiteError: as `suites_for`.
    """
    # What cannot be judged is not worth pinning.
    suites_for(pipeline)
    pins: list[Pin] = []
    absent: list[str] = []
    # The others of an operator are those that go with its own table as it was opened here.
    operators = operators_read(pipeline, reads)
    own = {operator.name: delta.open_table(lake.table(operator)) for operator in operators}
    as_of = {each.name: runtime_of(each, lake).versions() for each in operators if lake.cut is not None}
    # The logs are pinned last: every row of the others was computed from log rows committed earlier, so they hold them.
    optional = optional_roles(pipeline)
    for role, (operator, table) in result_tables(pipeline).items():
        if operator not in operators:
            continue
        uri = lake.table(operator, table.suffix)
        if lake.cut is None:
            opened = open_beside(own[operator.name], uri) if table.suffix else own[operator.name]
        else:
            opened = delta.open_table(uri, as_of[operator.name][table.suffix])
        newest = _pin(lake, role, uri, opened)
        if newest is not None:
            pins.append(newest)
        elif role in optional:
            absent.append(role)
        else:
            raise _not_built_yet(lake, pipeline, lake.table(operator), operator.reads[0])
    for stream in logs_read(pipeline, reads):
        newest = _pin(lake, role_of_log(pipeline, stream), lake.log(stream), delta.open_table(lake.log(stream)))
        if newest is None:
            raise _not_built_yet(lake, pipeline, lake.log(stream), stream)
        settled = version_after(lake, stream, through[stream.name]) if through and stream.name in through else None
        pins.append(newest if settled is None else replace(newest, version=settled))
    return Pins(pipeline.name, tuple(pins), tuple(absent))


def _pin(lake: Lake, role: str, uri: str, table: DeltaTable | None) -> Pin | None:
    return None if table is None else Pin(role, table_name(lake, uri), uri, table_id(table), table.version())


def _not_built_yet(lake: Lake, pipeline: Pipeline, uri: str, stream: Stream) -> NotBuiltYet:
    return NotBuiltYet(
        f"pipeline {pipeline.name!r} has no table {table_name(lake, uri)!r} in {lake.root!r} yet",
        f"bring data into {stream.source.location(lake)!r} and run `tidemark run {pipeline.name}` first, or point "
        "TIDEMARK_HOME to the lake that has it.",
        pipeline=pipeline.name,
        table=uri,
    )
