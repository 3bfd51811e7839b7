"""A count of late rows goes into an event and comes back, also one of an older release."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date

from docs.examples.late_counts import count_by_sensor
from streaming.lake.lake import Lake
from streaming.operators.backlog import LateCount, Waiting
from streaming.operators.corrected import PendingDay

DAY = date(2024, 1, 1)


def test_a_count_is_the_same_after_it_was_written_down(lake: Lake) -> None:
    count = LateCount.of(lake, count_by_sensor, [PendingDay(DAY, 2, 5, None)], 7)
    assert (count.through, count.days) == (7, {DAY: 5})
    assert LateCount.from_json(json.loads(json.dumps(count.to_json()))) == count


def test_a_count_of_another_policy_or_without_one_is_not_valid(lake: Lake) -> None:
    count = LateCount.of(lake, count_by_sensor, [], None)
    assert count.is_valid(lake, count_by_sensor) and count.through == -1
    assert not count.is_valid(lake, replace(count_by_sensor, late="drop"))
    older = {name: value for name, value in count.to_json().items() if name != "policy"}
    assert not LateCount.from_json(older).is_valid(lake, count_by_sensor)


def test_a_backlog_is_known_by_its_newest_batch_and_days() -> None:
    assert Waiting((), 3, "0123456789").identity == "01234567-3-planned"
    assert Waiting((DAY,), 3, "0123456789").identity == "01234567-3-2024-01-01"
