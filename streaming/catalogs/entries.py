"""Tables that the lake publishes, as catalogs are told of them: where they lie, their columns, and what these mean.

All of it follows from the declarations and from the tables as they lie, read by delta-rs. Named are the tables that a
person may read: logs, the tables of operators but for their state, changes, what is current, dead letters.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from deltalake import DeltaTable

from streaming.base import FrozenMapping
from streaming.declare import DEAD, SUBSCRIPTIONS, ColumnSpec, Operator, Pipeline, Stream, TableSpec
from streaming.lake import Lake
from streaming.log import about_log
from streaming.operators import about_table
from streaming.tables import NOTHING_SAID, TableAbout, delta, location, sql_type

OWN = "tidemark."
"""The beginning of the names of properties that are ours; those of others in a catalog are never touched."""

LAKE, PIPELINE, OWNER = f"{OWN}lake", f"{OWN}pipeline", f"{OWN}owner"
"""Properties of each table registered from here: URI of the lake, pipeline, its owner."""

_DEAD_LETTERS = {
    "generation": "The generation of the delivered table that the row is of.",
    "batch": "The batch of the delivery that made the newest attempt.",
    "position": "The place of the row in that batch.",
    "payload": "The row, as JSON.",
    "error": "What the target, or the delivery's own SQL, says of it.",
    "attempt": "How often it was tried, from 1 on.",
    "origin": "The place of the row in the table that it was read from.",
    "at": "Processing time of the newest attempt.",
}


@dataclass(frozen=True)
class CatalogColumn:
    """A column as a catalog has it: `type` is Spark's SQL for it, and `comment` what it means, for people.

    `schema` is the type as a Delta schema has it, in JSON; no catalog gives it back.
    """

    name: str
    type: str
    comment: str = ""
    is_nullable: bool = True
    partition: int | None = None
    schema: str = field(default="", compare=False)


@dataclass(frozen=True)
class TableEntry:
    """A table as a catalog has it: a Delta table at the URI `location`, called `name` in a `schema` of the catalog."""

    schema: str
    name: str
    location: str
    columns: tuple[CatalogColumn, ...] = ()
    comment: str = ""
    owner: str = ""
    properties: Mapping[str, str] = field(default_factory=lambda: FrozenMapping({}))

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def own_properties(self) -> Mapping[str, str]:
        """Those of the properties that are ours."""
        return {name: value for name, value in self.properties.items() if name.startswith(OWN)}

    def beside(self, standing: TableEntry) -> TableEntry:
        """The entry with those properties of the standing one that are not ours."""
        others = {name: value for name, value in standing.properties.items() if not name.startswith(OWN)}
        return replace(self, properties=FrozenMapping({**others, **self.properties}))

    def is_of(self, lake: str, pipeline: str | None = None) -> bool:
        """True if it was registered from the lake at this URI, and for this pipeline if one is given."""
        own = self.properties
        return own.get(LAKE) == lake and (pipeline is None or own.get(PIPELINE) == pipeline)


@dataclass(frozen=True)
class _Published:
    """A table of the lake that may be there: its name in a catalog, its path, and what is known of it."""

    name: str
    path: str
    comment: str
    about: TableAbout = NOTHING_SAID


def lake_uri(path: str) -> str:
    """The URI of a place in the lake: `s3://` for Hadoop's `s3a://`, and `file:///` before a path of this machine.

    Nothing is percent-encoded, for Hadoop reads a location as it stands.
    """
    uri = location(path).rstrip("/")
    return uri if "://" in uri else f"file://{uri}"


def lake_entries(lake: Lake, pipeline: Pipeline, schema: str | None = None) -> tuple[TableEntry, ...]:
    """The entries of those tables of a pipeline that are there, by name, in a `schema` or that of the pipeline's name.

    Raises:
        FormatError: a newer release has written a table.
        StoreError: the object store cannot be reached, or refuses.
    """
    entries = []
    for published in _published(lake, pipeline):
        table = delta.open_table(published.path)
        if table is not None:
            entries.append(_entry(lake, pipeline, schema or pipeline.name, published, table))
    return tuple(sorted(entries, key=lambda entry: entry.name))


def _published(lake: Lake, pipeline: Pipeline) -> Iterator[_Published]:
    for operator in pipeline.operators:
        yield from _of_operator(lake, operator)
    for delivery in pipeline.deliveries:
        name = delivery.table_name(DEAD)
        comment = f"Rows that the target of delivery {delivery.name} refused, or that its own SQL failed for."
        columns = (ColumnSpec(column, meaning) for column, meaning in _DEAD_LETTERS.items())
        yield _Published(name, lake.table(delivery, DEAD), comment, TableAbout.of(columns))
    for receiver in pipeline.receivers:
        name = receiver.table_name(SUBSCRIPTIONS)
        comment = f"Everything that receiver {receiver.name} has ever asked its source for."
        yield _Published(name, lake.table(receiver, SUBSCRIPTIONS), comment)
    for stream in pipeline.logs:
        yield _of_stream(lake, stream)


def _of_stream(lake: Lake, stream: Stream) -> _Published:
    what = "every row that has arrived, valid or rejected"
    if stream.revised:
        what = "every row that a revision has added, or taken back (`_origin.change` is -1)"
    comment = f"Event log of stream {stream.name}: {what}. {stream.description}"
    return _Published(
        f"{stream.name}_{'row_changes' if stream.revised else 'log'}",
        lake.log(stream),
        comment.strip(),
        about_log(stream),
    )


def _of_operator(lake: Lake, operator: Operator) -> Iterator[_Published]:
    for table in (*operator.tables, *operator.published):
        if table.is_state:
            continue
        yield _Published(
            operator.table_name(table.suffix),
            lake.table(operator, table.suffix),
            _about(operator, table),
            about_table(operator, table.suffix),
        )


def _entry(lake: Lake, pipeline: Pipeline, schema: str, published: _Published, table: DeltaTable) -> TableEntry:
    partitions = delta.partitions(table)
    fields: list[dict[str, Any]] = json.loads(table.schema().to_json())["fields"]
    properties = {
        LAKE: lake_uri(lake.root),
        PIPELINE: pipeline.name,
        OWNER: pipeline.owner,
        **published.about.properties,
    }
    return TableEntry(
        schema,
        published.name,
        lake_uri(published.path),
        tuple(
            CatalogColumn(
                each["name"],
                sql_type(each["type"]),
                published.about.columns.get(each["name"], {}).get("comment", ""),
                each["nullable"],
                partitions.index(each["name"]) if each["name"] in partitions else None,
                json.dumps(each["type"]),
            )
            for each in fields
        ),
        published.comment,
        pipeline.owner,
        FrozenMapping(properties),
    )


def _about(operator: Operator, table: TableSpec) -> str:
    """A description of a table; of results also that of the operator, where it is not part of it."""
    about = table.description if table.description.endswith(".") else f"{table.description}."
    is_said = bool(table.suffix) or operator.description in table.description
    return about if is_said else f"{about} {operator.description}"
