"""Deliveries of a pipeline that runs on and on."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import ClassVar

import pytest
from pyspark.sql import SparkSession

from streaming import Lake, Pipeline, drain
from streaming.base.errors import QueryFailed, SinkError
from streaming.base.intervals import utc_now
from streaming.declare.delivery import Delivery
from streaming.deliveries.runtime import DeliveryRuntime
from streaming.service.alerts import evaluate
from streaming.service.continuous import Continuous, Ending
from streaming.service.overview import Overview
from streaming.service.retries import next_wait
from streaming.service.status import ProcessStatus
from streaming.sinks.files import JsonLines
from streaming.sinks.postgres import Postgres
from streaming.sinks.rest import Rest
from streaming.sinks.sink import Delivered, Guarantee, NumberedBatch, PutAside, Sink, Target
from tests.support.delivering import ingested, pipeline, reading, readings
from tests.support.disks import fill, mounted
from tests.support.feeds import land_all
from tests.support.http_server import http_server
from tests.support.instants import NOW, at
from tests.support.postgres import rows, run


def written(lake: Lake) -> list[int]:
    paths = sorted(path for path in Path(lake.root, "out").rglob("*.json") if path.parent.name != "_delivered")
    return [json.loads(line)["value"] for path in paths for line in path.read_text().splitlines()]


def run_until(
    spark: SparkSession,
    lake: Lake,
    of: Pipeline,
    ending: Callable[[], Ending | None],
    statuses: list[ProcessStatus],
) -> None:
    Continuous(spark, lake, of, utc_now, lambda measures: None, statuses.append).run(ending, Event())


@dataclass(frozen=True)
class Broken(Target):
    """A target of a user's own that nobody has tried."""

    kind: ClassVar[str] = "broken"
    guarantee: ClassVar[Guarantee] = "at least once"

    @property
    def address(self) -> str:
        return "nowhere"

    def connect(self, lake: Lake, delivered: Delivered) -> Sink:
        return BrokenSink()


class BrokenSink(Sink):
    def delivered_through(self, generation: int) -> None:
        return None

    def deliver(self, batch: NumberedBatch, put_aside: PutAside) -> None:
        raise KeyError("no such cell")

    def close(self) -> None:
        """Nothing is open."""


def test_a_target_that_raises_whatever_it_likes_pauses_its_own_delivery_alone(spark: SparkSession, lake: Lake) -> None:
    of = pipeline(
        Delivery("broken", readings, Broken(), select=("value",)),
        Delivery("files", readings, JsonLines("out"), select=("value",)),
    )
    land_all(lake, readings, [reading("a", 1, 1)])
    with pytest.raises(QueryFailed, match="delivery 'broken' failed: KeyError: 'no such cell'"):
        drain(spark, lake, of)
    assert written(lake) == [1]


def test_a_target_that_is_away_waits_and_tells_while_others_get_theirs_and_goes_on_by_itself(
    spark: SparkSession, lake: Lake
) -> None:
    with http_server() as server:
        server.answer = lambda posted: 503
        of = pipeline(
            Delivery("post", readings, Rest(server.url, flush=None), select=("value",)),
            Delivery("files", readings, JsonLines("out"), select=("value",)),
        )
        statuses: list[ProcessStatus] = []
        land_all(lake, readings, [reading("a", 1, 1)], [reading("a", 2, 2)])

        def ending() -> Ending | None:
            waits = bool(statuses) and statuses[-1].queries["post"].waiting is not None
            if waits and len(written(lake)) == 2:
                server.answer = lambda posted: 200
            return "drain" if len(server.rows()) == 2 else None

        run_until(spark, lake, of, ending, statuses)

    process = next(status for status in statuses if status.queries["post"].waiting is not None)
    assert "answers 503 Service Unavailable" in (process.queries["post"].waiting or "")
    assert process.queries["files"].waiting is None
    assert statuses[-1].queries["post"].waiting is None
    assert [row["value"] for row in server.rows()] == written(lake) == [1, 2]
    assert {status.phase for status in statuses} >= {"running", "draining"}

    since = process.queries["post"].waiting_since
    assert since is not None
    overview = Overview(of, "running", since, "", None, 0, (), process)
    for minutes, raised in ((4, []), (6, ["stream_deliveries_arrive"])):
        later = since + minutes * (at(60) - at(0))
        assert [alert.name for alert in evaluate(overview, of.limits, later) if not alert.passed] == raised


def test_a_delivery_that_must_be_told_what_is_meant_pauses_alone_and_goes_on_once_it_is(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streaming.service.delivering._WHILE_PAUSED", 0.2)
    files = Delivery("files", readings, JsonLines("out", by="none"), select=("value",))
    ingested(spark, lake, [reading("a", 1, 1)])
    before: list[ProcessStatus] = []
    run_until(spark, lake, pipeline(files), lambda: "stop" if written(lake) else None, before)

    statuses: list[ProcessStatus] = []
    of = pipeline(replace(files, where="value > 1"))
    land_all(lake, readings, [reading("a", 2, 0), reading("a", 3, 3)])
    has_decision = False

    def ending() -> Ending | None:
        nonlocal has_decision
        paused = bool(statuses) and statuses[-1].queries["files"].paused
        if paused and statuses[-1].newest_batch == 1 and not has_decision:
            has_decision = True
            assert "where was nothing and is value > 1" in str(paused)
            DeliveryRuntime(of.deliveries[0], lake, lambda: NOW).begin_anew(again=False)
        return "stop" if written(lake) == [1, 3] else None

    run_until(spark, lake, of, ending, statuses)
    assert has_decision


def said_while_waiting(statuses: list[ProcessStatus], name: str) -> str:
    """Why a delivery waits now; empty where it does not."""
    return (statuses[-1].queries[name].waiting or "") if statuses and name in statuses[-1].queries else ""


@pytest.mark.long
def test_a_full_disk_is_waited_for_and_no_row_is_lost_or_there_twice(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    """Of the second batch a note and the file of its first hour fit; the disk is full within that of the second."""
    with mounted(tmp_path / "disk") as disk:
        files = Delivery("files", readings, JsonLines(str(disk / "out"), by="hour"), select=("id", "value"))
        of, statuses = pipeline(files), list[ProcessStatus]()
        land_all(lake, readings, [reading("a", 1, 1)])
        drain(spark, lake, of)
        filler = fill(disk, free=16_384)
        land_all(lake, readings, [reading("b", 2, 2), reading("c" * 100_000, 3_600, 3)])
        snapshots: list[list[int]] = []

        def there() -> list[int]:
            paths = [path for path in Path(disk, "out").rglob("*.json") if path.parent.name != "_delivered"]
            visible = [path for path in paths if not path.name.startswith(".")]
            return sorted(json.loads(line)["value"] for path in visible for line in path.read_text().splitlines())

        def ending() -> Ending | None:
            if said_while_waiting(statuses, "files") and not snapshots:
                snapshots.append(there())
                assert "No space left on device. Free space" in said_while_waiting(statuses, "files")
                filler.unlink()
            return "drain" if snapshots and there() == [1, 2, 3] else None

        run_until(spark, lake, of, ending, statuses)
        assert snapshots == [[1, 2]], "files are put whole"
        assert there() == [1, 2, 3]
        assert list(Path(disk, "out").rglob(".*")) == []
        assert json.loads(Path(disk, "out/_delivered/readings-files.json").read_text()) == {"generation": 0, "batch": 1}
        assert statuses[-1].queries["files"].waiting is None


@pytest.mark.long
def test_a_table_that_is_dropped_or_altered_is_waited_for_and_once_it_is_back_each_row_is_there_once(
    spark: SparkSession, lake: Lake, postgres: str
) -> None:
    """Four rows, a batch each: before the second the table is dropped, before the fourth it loses a column."""
    table = Postgres("r", key=("id",), connection=postgres)
    of, statuses = pipeline(Delivery("table", readings, table, select=("id", "value"), batch=1)), list[ProcessStatus]()
    land_all(lake, readings, [reading("a", 1, 1)])
    reasons: dict[str, str] = {}

    def arrived() -> int:
        there = rows(postgres, "select to_regclass('r') is not null")[0][0]
        return int(rows(postgres, "select count(*) from r")[0][0]) if there else 0

    def ending() -> Ending | None:
        why = said_while_waiting(statuses, "table")
        if arrived() == 1 and not why and "dropped" not in reasons:
            reasons["dropped"] = ""
            run(postgres, "create table kept (like r including all)", "insert into kept table r", "drop table r")
            land_all(lake, readings, [reading("b", 2, 2), reading("c", 3, 3)])
        elif why and reasons.get("dropped") == "":
            reasons["dropped"] = why
            run(postgres, "alter table kept rename to r")
        elif arrived() == 3 and not why and "altered" not in reasons:
            reasons["altered"] = ""
            run(postgres, "alter table r rename column value to amount")
            land_all(lake, readings, [reading("d", 4, 4)])
        elif why and reasons.get("altered") == "":
            reasons["altered"] = why
            run(postgres, "alter table r rename column amount to value")
        return "stop" if arrived() == 4 else None

    run_until(spark, lake, of, ending, statuses)
    assert "table 'r' is not there any more, and rows were delivered to it. Restore it" in reasons["dropped"]
    assert "table 'r' has no column 'value'; add it with `alter table r add column" in reasons["altered"]
    assert rows(postgres, "select id, value from r order by 1") == [("a", 1), ("b", 2), ("c", 3), ("d", 4)]
    assert DeliveryRuntime(of.deliveries[0], lake, lambda: NOW).dead_letters.count() == 0


@pytest.mark.parametrize(("asked", "least"), [(None, 0.5), (7.0, 7.0)])
def test_the_next_attempt_is_later_each_time_and_not_before_the_target_asks_for_it(
    asked: float | None, least: float
) -> None:
    class Attempt:
        def __init__(self, number: int) -> None:
            self.attempt_number = number
            self.outcome = self

        def exception(self) -> SinkError:
            return SinkError("away", retry_after=asked)

    waits = [next_wait(Attempt(number)) for number in range(1, 12)]  # type: ignore[arg-type]
    assert waits[0] >= least
    assert max(waits) <= 61.0
    assert waits[-1] >= 60.0
