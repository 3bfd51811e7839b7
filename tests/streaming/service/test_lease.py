"""The lease as other machines see it; on one machine the lock decides, which the tests on bad input kill."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from streaming.base.errors import LeaseError
from streaming.lake.lake import Lake
from streaming.service import lease as leases
from streaming.service.lease import TIMEOUT, holder_of, take_lease
from tests.support.pipelines.beats import beats


def record(lake: Lake) -> Path:
    return Path(lake.checkpoint(beats, "lease.json"))


def renewed(lake: Lake, ago: timedelta) -> None:
    """As if the holder had given its last sign of life that long ago."""
    written = json.loads(record(lake).read_text())
    record(lake).write_text(json.dumps({**written, "renewed": (datetime.now(UTC) - ago).isoformat()}))


def left_behind(lake: Lake, ago: timedelta) -> None:
    """The record of a holder on another machine that died `ago` without a word."""
    with take_lease(lake, beats, "stream", host="elsewhere"):
        written = record(lake).read_text()
    record(lake).write_text(written)
    renewed(lake, ago)


def test_a_holder_is_known_while_it_holds_and_not_afterwards(lake: Lake) -> None:
    assert holder_of(lake, beats) is None
    with take_lease(lake, beats, "stream") as held:
        assert holder_of(lake, beats) == held.holder
        assert held.holder.what == "stream"
        refused = pytest.raises(LeaseError, match=rf"held by process {os.getpid()} on .*`tidemark down beats` ends")
        with refused, take_lease(lake, beats, wait=0.1):
            pass
    assert holder_of(lake, beats) is None
    assert not record(lake).exists()


def test_a_holder_on_another_machine_is_believed_for_the_timeout_and_then_taken_over(lake: Lake) -> None:
    left_behind(lake, ago=TIMEOUT - timedelta(seconds=20))
    assert str(holder_of(lake, beats)).startswith("process")
    with pytest.raises(LeaseError, match="on elsewhere"), take_lease(lake, beats):
        pass

    renewed(lake, TIMEOUT + timedelta(seconds=1))
    assert holder_of(lake, beats) is None
    with take_lease(lake, beats) as held:
        assert holder_of(lake, beats) == held.holder


def test_a_holder_of_this_machine_that_died_is_followed_at_once(lake: Lake) -> None:
    with take_lease(lake, beats):
        written = record(lake).read_text()
    record(lake).write_text(written)
    with take_lease(lake, beats) as held:
        assert holder_of(lake, beats) == held.holder


def test_a_holder_that_was_taken_over_learns_of_it_and_leaves_the_successors_record(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "_RENEWED_EVERY", 0.05)
    with take_lease(lake, beats) as held:
        successor = json.dumps({**json.loads(record(lake).read_text()), "token": "successor", "host": "elsewhere"})
        record(lake).write_text(successor)
        assert held.lost.wait(10)
    assert json.loads(record(lake).read_text())["token"] == "successor"


def test_a_holder_renews_its_record(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "_RENEWED_EVERY", 0.05)
    with take_lease(lake, beats) as held:
        first = held.holder.renewed
        deadline = datetime.now(UTC) + timedelta(seconds=10)
        while json.loads(record(lake).read_text())["renewed"] == first:
            assert datetime.now(UTC) < deadline
