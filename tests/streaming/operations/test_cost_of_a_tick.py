"""What sensors, schedules and maintenance read does not grow with the history: files are counted, not seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import dagster as dg
import pytest

from docs.examples.late_counts import count_by_sensor, pipeline
from platform_assets.events.backlog import backlog_metadata, may_need_corrections, waiting
from platform_assets.keys import late_key
from streaming import log
from streaming.lake.lake import Lake
from streaming.operations.maintenance import maintain
from streaming.operators.backlog import LateCount
from streaming.operators.progress import PendingDay
from streaming.tables import delta, history
from tests.support.histories import grow_corrections, grow_log
from tests.support.instants import NOW, T0

FEW, MANY, NEW = 100, 2_000, 3
stream = pipeline.stream


@pytest.fixture
def commits_read(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Callable[[], Any]], int]]:
    """How many commits of Delta logs are read while something is done."""
    read: list[int] = []
    original = history._commit_of

    def counting(entries: Any, version: int) -> Any:
        read.append(version)
        return original(entries, version)

    monkeypatch.setattr(history, "_commit_of", counting)

    def during(act: Callable[[], Any]) -> int:
        read.clear()
        act()
        return len(read)

    yield during


def count_at(instance: dg.DagsterInstance, lake: Lake, through: int) -> None:
    """Dagster's last count of late pairs, of the day on which the history's first batches lie."""
    day = PendingDay(T0.date(), 1, through, None)
    count = backlog_metadata(LateCount.of(lake, count_by_sensor, [day], through))
    event = dg.AssetObservation(late_key(count_by_sensor), metadata=count)
    instance.report_runless_asset_event(event)


def costs_of_a_tick(lake: Lake, batches: int, commits_read: Callable[[Callable[[], Any]], int]) -> dict[str, int]:
    """The commits that everything reads which looks at the lake again and again, `NEW` batches after it last did."""
    grow_log(lake, stream, count_by_sensor.name, batches)
    grow_corrections(lake, count_by_sensor, batches)
    log.archive_batches(lake, stream)
    grow_log(lake, stream, count_by_sensor.name, batches + NEW)
    assert delta.version_of(lake.log(stream)) == batches + NEW + 1
    with dg.DagsterInstance.ephemeral() as instance:
        count_at(instance, lake, 5)
        costs = {
            "late data, not counted": commits_read(lambda: waiting(instance, lake, count_by_sensor)),
            "schedule": commits_read(lambda: may_need_corrections(instance, lake, count_by_sensor)),
            "head": commits_read(lambda: log.head(lake, stream)),
            "step": commits_read(lambda: log.batches_after(lake, stream, batches + NEW - 1)),
            "archive": commits_read(lambda: log.archive_batches(lake, stream)),
            "maintenance": commits_read(lambda: maintain(lake, pipeline, now=lambda: NOW)),
        }
        count_at(instance, lake, batches + NEW)
        return costs | {"late data, counted": commits_read(lambda: waiting(instance, lake, count_by_sensor))}


@pytest.mark.long
def test_the_cost_of_a_tick_does_not_grow_with_the_history(
    lake: Lake, commits_read: Callable[[Callable[[], Any]], int]
) -> None:
    few, many = (costs_of_a_tick(lake, batches, commits_read) for batches in (FEW, MANY))
    # Commits are read sixteen at once, and those that were not begun when the first one told enough are left out.
    for name in ("step", "maintenance"):
        assert 0 < few.pop(name) <= 17 and 0 < many.pop(name) <= 17
    assert few == many
    assert few["late data, not counted"] == few["late data, counted"] == 0
    assert max(many.values()) <= 2 * 16


def test_the_newest_late_batch_is_what_waits_and_a_count_of_it_settles_it(lake: Lake) -> None:
    grow_log(lake, stream, count_by_sensor.name, FEW)
    with dg.DagsterInstance.ephemeral() as instance:
        # Nobody has counted: every batch with late pairs is new, and the planner may find days.
        asked = waiting(instance, lake, count_by_sensor)
        assert asked is not None and (asked.days, asked.newest_batch) == ((), 90)
        count_at(instance, lake, 89)
        assert waiting(instance, lake, count_by_sensor) == asked
        # Counted, and the one day that was found is not corrected yet; then it is.
        count_at(instance, lake, 90)
        backlog = waiting(instance, lake, count_by_sensor)
        assert backlog is not None and backlog.days == (T0.date(),)
        grow_corrections(lake, count_by_sensor, 90)
        assert waiting(instance, lake, count_by_sensor) is None
        assert not may_need_corrections(instance, lake, count_by_sensor)


def test_a_table_in_which_nothing_was_written_is_left_alone_until_files_can_go(lake: Lake) -> None:
    grow_log(lake, stream, count_by_sensor.name, FEW)

    def tables(after: timedelta) -> set[str]:
        return {entry.table for entry in maintain(lake, pipeline, now=lambda: NOW + after)}

    assert tables(timedelta()) == {"log", "batches"}
    assert tables(timedelta(hours=1)) == set()
    grow_log(lake, stream, count_by_sensor.name, FEW + NEW)
    assert tables(timedelta(hours=2)) == {"log", "batches"}
    assert tables(timedelta(hours=3)) == set()
    assert tables(timedelta(days=7, hours=2)) == {"log", "batches"}
