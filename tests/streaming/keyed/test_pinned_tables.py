"""A Delta table that is updated, as rules of a keyed function: each batch pins it, and a replay needs no old one."""

from __future__ import annotations

import json
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from streaming.audit.laws import audit
from streaming.base.errors import DeclarationError
from streaming.clocks import BoundedOutOfOrderness
from streaming.declare.keyed import Keyed
from streaming.declare.pinned import Pinned
from streaming.declare.pipeline import Pipeline
from streaming.declare.stream import Stream
from streaming.formats.json import Json
from streaming.keyed.fold import Key
from streaming.lake.lake import Lake
from streaming.operations.maintenance import maintain
from streaming.operations.rebuild import rebuild
from streaming.operators import runtime_of
from streaming.sources.table import Table
from tests.streaming.keyed.functions import payloads, readings
from tests.streaming.keyed.functions import rows as drawn
from tests.streaming.keyed.test_steps import tables
from tidemark.testing import play, rows, run


def dimension(uri: str) -> Stream:
    return Stream(
        "rooms",
        Table(uri, changes_by=("id",)),
        Json("id string not null, room string, removed boolean not null"),
        "changed_at",
        BoundedOutOfOrderness("0 seconds"),
        derived={"changed_at": "_origin.written", "version": "_origin.unit"},
    )


def tell_room(key: Key, row: Any) -> None:
    dimension_row = key.rules.get((row.id,))
    names = ",".join(rule.id for rule in key.rules.values())
    key.emit(room=dimension_row and dimension_row.room, version=dimension_row and dimension_row.version, known=names)


def told(uri: str) -> Keyed:
    pinned = Pinned(dimension(uri), by=("id",), removed="removed")
    return Keyed("told", readings, ("id",), "", "room string, version bigint, known string", tell_room, rules=pinned)


def write(uri: str, **rooms: str) -> None:
    write_deltalake(uri, pa.table({"id": list(rooms), "room": list(rooms.values())}), mode="overwrite")


def results(spark: SparkSession, lake: Lake, of: Keyed) -> list[tuple[Any, ...]]:
    result_rows = rows(runtime_of(of, lake).readable["current"](spark).drop("_written_at", "_day", "_at"))
    return sorted(result_rows, key=repr)


def alter_pin(lake: Lake, batch: int, newest: int) -> None:
    """Let the commit of a batch of readings say that the rooms were elsewhere."""
    for entry in Path(lake.log(readings), "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in entry.read_text().splitlines()]
        for info in (action["commitInfo"] for action in actions if "commitInfo" in action):
            metadata = json.loads(info.get("userMetadata") or "{}")
            if metadata.get("pins") and metadata["batch"] == batch:
                metadata["pins"]["rooms"][1] = newest
                info["userMetadata"] = json.dumps(metadata)
        entry.write_text("".join(f"{json.dumps(action)}\n" for action in actions))


PUBLISHED = [
    ("a", "attic", 3, "a,c"),
    ("a", "hall", 0, "a,b"),
    ("b", "cellar", 0, "a,b"),
    ("b", None, None, "a,c"),
    ("c", "loft", 3, "a,c"),
]


@pytest.mark.long
def test_a_pinned_table_is_read_as_it_was_with_each_batch_also_when_its_old_versions_are_gone(
    spark: SparkSession, tmp_path: Path
) -> None:
    uri, lake = str(tmp_path / "rooms"), Lake(str(tmp_path / "lake"))
    of = told(uri)
    assert of.rules is not None
    pipeline = Pipeline(name="house", streams=(readings, of.rules.control), operators=(of,))
    write(uri, a="hall", b="cellar")
    run(spark, lake, pipeline, payloads("a@1=1, b@2=2"))
    # What changes twice between two batches is seen as it is in the end.
    write(uri, a="porch", b="cellar")
    DeltaTable(uri).optimize.compact()
    write(uri, a="yard", b="cellar", c="loft")
    write(uri, a="attic", c="loft")
    run(spark, lake, pipeline, payloads("a@3=1, b@4=2, c@5=3"))
    newest = DeltaTable(uri).version()
    published = [(*row[:2], newest if row[1] in ("attic", "loft") else row[2], row[3]) for row in PUBLISHED]
    assert results(spark, lake, of) == published
    before = tables(lake, of)

    audited = {finding.subject: finding.broken for finding in audit(spark, lake, pipeline) if finding.law == "cuts"}
    assert audited == {"told": 0, "told_state": 0}
    altered = Lake(str(tmp_path / "altered"))
    shutil.copytree(lake.root, altered.root)
    alter_pin(altered, batch=1, newest=0)
    audited = {finding.subject: finding.broken for finding in audit(spark, altered, pipeline) if finding.law == "cuts"}
    assert audited == {"told": 6, "told_state": 0}, (
        "three rows are stored that do not follow, and three are not that do"
    )

    # A week later: other rooms, and nothing is left of the versions that were pinned.
    write(uri, a="other", b="other", c="other")
    run(spark, lake, pipeline)
    shutil.rmtree(uri)
    maintain(lake, pipeline, retention=timedelta(0), entry_retention=timedelta(0))
    rebuild(spark, lake, pipeline, of)
    assert tables(lake, of) == before


def test_a_rule_that_was_removed_is_none_until_it_comes_again() -> None:
    of = told("anywhere")
    at = {"changed_at": "2026-01-01T00:00:00+00:00", "version": 1}

    def batch(room: str | None, removed: bool, time: int) -> dict[str, list[dict[str, Any]]]:
        return {"rooms": [{"id": "a", "room": room, "removed": removed, **at}], "readings": drawn(f"a@{time}=1")}

    played = play(of, batch("hall", False, 1), batch("hall", True, 2), batch("attic", False, 3))
    assert [row[2:] for row in played.results] == [("hall", 1, "a"), (None, None, ""), ("attic", 1, "a")]


def test_removed_must_be_a_boolean_of_the_control_stream() -> None:
    with pytest.raises(DeclarationError, match=r"removed='room' is no boolean column .*'rooms'; those are: removed\."):
        Pinned(dimension("anywhere"), by=("id",), removed="room")
