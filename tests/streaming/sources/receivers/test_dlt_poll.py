"""Rows of real resources of dlt land exactly once, with the state behind them, whatever fails or dies meanwhile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import count, islice
from pathlib import Path
from typing import Any
from uuid import UUID

import dlt
import pyarrow as pa
import pytest

from streaming import DltPoll, Lake, Received, Reception
from streaming.base.errors import DeclarationError, ReceiverError, WrongType
from streaming.service import receivers
from streaming.sources.receivers import dlt_runs, landing
from streaming.sources.receivers.connector import PORTION_BYTES, PORTION_ROWS
from tests.streaming.sources.receivers.contract import check_connector
from tests.support.killed import Killed
from tests.support.pipelines.issues import ISSUES, all_issues
from tests.support.receiving import landed, landed_rows, received, running
from tests.support.waiting import until


@pytest.fixture(autouse=True)
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of issues."""
    file = tmp_path / "issues.jsonl"
    file.touch()
    monkeypatch.setenv(ISSUES, str(file))
    return file


def add(api: Path, *changed: int, **more: Any) -> None:
    """Issues that changed at these times."""
    with api.open("a") as file:
        file.writelines(json.dumps({"id": f"i{at}", "changed": at, **more}) + "\n" for at in changed)


POLL = DltPoll(all_issues, every="50 milliseconds")


def test_a_resource_keeps_the_contract(api: Path) -> None:
    rows = [b'{"id": "i1", "changed": 1}', b'{"id": "i2", "changed": 2}', b'{"id": "i3", "changed": 3}']
    check_connector(POLL, rows, lambda: add(api, 1, 2, 3))


def test_functions_that_no_other_process_finds_are_refused() -> None:
    with pytest.raises(DeclarationError, match="is no function of a module; write one with a name"):
        DltPoll(lambda: all_issues())
    with pytest.raises(WrongType, match="resource of DltPoll is 'issues', a str"):
        DltPoll("issues")  # type: ignore[arg-type]
    with pytest.raises(DeclarationError, match="soon"):
        DltPoll(all_issues, every="soon")
    assert POLL.address == "dlt resource tests.support.pipelines.issues.all_issues"


def no_resource() -> Any:
    """Rows, but none of a resource."""
    return [{"id": 1}]


@dlt.resource
def strange() -> Iterator[Any]:
    """A value that is nothing in JSON."""
    yield {"value": object()}


def of_no_word() -> Any:
    """The resource."""
    return strange()


def test_what_is_no_resource_fails_or_is_nothing_in_json_is_told(api: Path) -> None:
    add(api, 1)
    add(api, 2, breaks=True)
    for make, text in (
        (no_resource, r"returns \[\{'id': 1\}\], a list; return a DltResource"),
        (all_issues, r"all_issues fails \(OSError: the API is down\); nothing of this run has landed"),
        (of_no_word, r"gives a row that JSON cannot tell \(a object\): \{'value': .*; let it give other values"),
    ):
        with closing(DltPoll(make).receive(Reception())) as receiving, pytest.raises(ReceiverError, match=text):
            list(receiving)


@dlt.resource
def typed() -> Iterator[Any]:
    """Rows as sources of dlt give them: by themselves, in lists, in tables."""
    yield {"decimal": Decimal("0.10"), "instant": datetime(2026, 1, 2, 3, tzinfo=UTC), "day": date(2026, 1, 2)}
    yield [{"bytes": b"\xff", "uuid": UUID(int=1), "text": "é\n"}, {"nested": {"list": [1, None, True]}}]
    yield pa.table({"n": [1, 2]})


def all_types() -> Any:
    """The resource."""
    return typed()


def test_values_that_json_has_no_word_for_become_text_and_decimals_stay_exact() -> None:
    rows = [row for part in a_run(all_types) for row in part.rows]
    assert rows == [
        b'{"decimal": 0.10, "instant": "2026-01-02T03:00:00+00:00", "day": "2026-01-02"}',
        '{"bytes": "/w==", "uuid": "00000000-0000-0000-0000-000000000001", "text": "é\\n"}'.encode(),
        b'{"nested": {"list": [1, null, true]}}',
        b'{"n": 1}',
        b'{"n": 2}',
    ]


def a_run(make: Callable[[], Any]) -> list[Received]:
    """All that one run gives, to its state."""
    with closing(DltPoll(make).receive(Reception())) as receiving:
        parts = [next(receiving)]
        while parts[-1].cursor is None:
            parts.append(next(receiving))
    return parts


@dlt.resource
def columnar() -> Iterator[Any]:
    """Three times as many rows as a portion has, at once."""
    yield pa.table({"n": range(3 * PORTION_ROWS)})


def all_columnar() -> Any:
    """The resource."""
    return columnar()


@dlt.resource
def wide() -> Iterator[Any]:
    """A few rows that are large."""
    yield from ({"text": "x" * (PORTION_BYTES // 2)} for _ in range(4))


def all_wide() -> Any:
    """The resource."""
    return wide()


def test_rows_are_handed_on_by_number_by_size_and_however_few_once_it_is_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def portions(make: Callable[[], Any]) -> list[int]:
        return [len(part.rows) for part in a_run(make) if part.rows]

    with monkeypatch.context() as fast:
        fast.setattr(dlt_runs, "IDLE", 60.0)
        assert portions(all_columnar) == [PORTION_ROWS] * 3
        assert portions(all_wide) == [2, 2]
    monkeypatch.setattr(dlt_runs, "IDLE", 0.0)
    assert portions(all_wide) == [1, 1, 1, 1]


@dlt.resource
def enormous() -> Iterator[Any]:
    """A table whose rows take a lot of memory as objects."""
    yield pa.table({"n": range(300_000)})


def all_enormous() -> Any:
    """The resource."""
    return enormous()


def test_a_table_becomes_rows_a_portion_after_another() -> None:
    with closing(DltPoll(all_enormous).receive(Reception())) as receiving:
        next(receiving)
        tracemalloc.start()
        try:
            assert any(part.rows for part in islice(receiving, 20))
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    megabyte = 2**20
    assert most < 8 * megabyte


@dlt.resource
def ended(changed: Any = dlt.sources.incremental("changed", initial_value=0, end_value=10)) -> Iterator[Any]:  # noqa: B008
    """A resource with an end."""
    yield {"changed": 1}


@dlt.transformer(data_from=ended)
def transformed(row: Any) -> Any:
    """Rows of another resource."""
    return {"of": row}


def all_ended() -> Any:
    """The resource."""
    return ended()


def all_transformed() -> Any:
    """The transformer."""
    return transformed()


def all_hinted() -> Any:
    """A resource that is given an end where it is used."""
    return wide().apply_hints(incremental=dlt.sources.incremental("text", initial_value="", end_value="y"))


def test_an_incremental_with_an_end_of_which_dlt_keeps_no_state_is_refused() -> None:
    for make, text in (
        (all_ended, r"reads 'ended' by 'changed' up to end_value=10, of which dlt keeps no state"),
        (all_transformed, r"reads 'ended' by 'changed' up to end_value=10, of which dlt keeps no state"),
        (all_hinted, r"reads 'wide' by 'text' up to end_value='y', .*; leave end_value out"),
    ):
        with pytest.raises(ReceiverError, match=text):
            a_run(make)


@dlt.resource
def ascending(
    changed: Any = dlt.sources.incremental("changed", initial_value=0, row_order="asc"),  # noqa: B008
) -> Iterator[Any]:
    """Ten rows of an API that gives them in order."""
    yield from ({"changed": n} for n in range(changed.last_value, 10))


def ascending_in_parts() -> Any:
    """The resource, of whose rows a run takes a few."""
    return ascending().add_limit(3)


def test_a_limit_cuts_the_first_run_and_the_next_ones_go_on_behind_it() -> None:
    rows: list[int] = []
    with closing(DltPoll(ascending_in_parts, every="1 millisecond").receive(Reception())) as receiving:
        while 9 not in rows:
            rows += [json.loads(row)["changed"] for row in next(receiving).rows]
    assert rows == [*range(10)]


def ids(lake: Lake) -> list[str]:
    return [json.loads(row)["id"] for row in landed_rows(lake)]


def test_what_changed_lands_once_a_run_across_restarts(api: Path, lake: Lake) -> None:
    pipeline = received(POLL, every="10 milliseconds")
    add(api, 1, 2)
    with running(lake, pipeline):
        until(lambda: ids(lake) == ["i1", "i2"], "landed")
        add(api, 3)
        until(lambda: ids(lake) == ["i1", "i2", "i3"], "landed")
    # The boundary comes again from the API, and dlt knows it by its state.
    add(api, 3, 4)
    with running(lake, pipeline):
        until(lambda: "i4" in ids(lake), "landed")
    assert ids(lake) == ["i1", "i2", "i3", "i4"]


def test_a_run_that_fails_lands_nothing_and_is_made_again(api: Path, lake: Lake) -> None:
    add(api, 1, 2)
    add(api, 3, breaks=True)
    pipeline = received(POLL, every="10 milliseconds", rows_per_file=1)
    with running(lake, pipeline) as run:
        until(lambda: "the API is down" in run.status.why if run.statuses else False, "told")
        assert landed(lake) == [] and run.rows == 0
        api.write_text("")
        add(api, 1, 2, 3, 4)
        until(lambda: ids(lake) == ["i1", "i2", "i3", "i4"], "landed")
    assert len(landed(lake)) == 1, "a run lands in one file, however few rows a file is to have"
    assert run.status.rows == run.status.landed == 4


ASKED, ANSWERS = threading.Event(), threading.Event()


@dlt.resource
def silent(changed: Any = dlt.sources.incremental("changed", initial_value=0)) -> Iterator[Any]:  # noqa: B008
    """Two rows, between which the API keeps silent until it is told to answer."""
    yield {"changed": changed.last_value + 1}
    ASKED.set()
    assert ANSWERS.wait(60)
    yield {"changed": changed.last_value + 1}


def all_silent() -> Any:
    """The resource."""
    return silent()


def test_a_receiver_stops_while_the_api_keeps_silent_and_no_row_is_lost_or_doubled(lake: Lake) -> None:
    """
    1st process    row 1, and the API is asked for the next    stops, within two seconds; nothing has landed
    2nd process                                                waits for that run to end; rows 1 and 2 land, once
    """
    ASKED.clear()
    ANSWERS.clear()
    pipeline = received(DltPoll(all_silent, every="1 hour"), every="10 milliseconds")
    with running(lake, pipeline):
        until(ASKED.is_set, "asked")
        began = time.monotonic()
    assert time.monotonic() - began < 2 and landed(lake) == []
    with running(lake, pipeline) as run:
        until(lambda: run.statuses and run.status.state == "connecting", "waiting")
        assert landed(lake) == []
        ANSWERS.set()
        until(lambda: landed(lake), "landed")
    assert [json.loads(row)["changed"] for row in landed_rows(lake)] == [1, 2]


TRIES: list[float] = []


@dlt.resource
def slow_to_fail() -> Iterator[Any]:
    """An API that fails once it has kept silent for longer than a connection has to stand."""
    TRIES.append(time.monotonic())
    if not ANSWERS.wait(0.3):
        raise OSError("the API is down")
    yield {"n": 1}


def all_slow_to_fail() -> Any:
    """The resource."""
    return slow_to_fail()


def test_an_api_that_keeps_silent_and_fails_is_away_since_its_first_failure(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    TRIES.clear()
    ANSWERS.clear()
    monkeypatch.setattr(dlt_runs, "IDLE", 0.02)
    monkeypatch.setattr(receivers, "_STEADY", 0.1)
    with running(lake, received(DltPoll(all_slow_to_fail))) as run:
        until(lambda: len(TRIES) >= 3, "tried again")
        until(lambda: run.status.state == "waiting", "waiting")
    statuses = run.statuses[: -len([status for status in run.statuses if status.state == "stopped"])]
    assert "receiving" not in {status.state for status in statuses}
    assert len({status.away_since for status in statuses} - {None}) == 1
    assert run.status.reconnects == 0


class Ended(threading.Thread):
    """A run at its end, at which two look at the same time if they can."""

    looks = threading.Barrier(2)

    def is_alive(self) -> bool:
        with suppress(threading.BrokenBarrierError):
            self.looks.wait(0.3)
        return False


AT_WORK: list[str] = []
TOGETHER: list[int] = []


@dlt.resource
def alone() -> Iterator[Any]:
    """A row, and how many runs are at work while it is asked for."""
    AT_WORK.append("run")
    ANSWERS.wait(0.2)
    TOGETHER.append(len(AT_WORK))
    yield {"n": 1}
    AT_WORK.pop()


def all_alone() -> Any:
    """The resource."""
    return alone()


def test_two_receivers_of_one_resource_run_it_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    ANSWERS.clear()
    poll = DltPoll(all_alone)
    monkeypatch.setitem(dlt_runs._NEWEST, poll.address, Ended())
    both = [threading.Thread(target=a_run, args=(all_alone,)) for _ in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join(20)
    assert TOGETHER == [1, 1]


@pytest.mark.parametrize("nth", [1, 2, 3, 4])
def test_nothing_is_lost_or_doubled_by_a_death_at_any_step_of_a_landing(
    nth: int, api: Path, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = received(POLL, every="10 milliseconds")
    add(api, 1, 2)
    with monkeypatch.context() as patched:
        dies_at(nth, patched)
        with running(lake, pipeline) as run:
            until(lambda: run.error, "dead")
        assert isinstance(run.error[0], Killed)
    add(api, 3)
    with running(lake, pipeline):
        until(lambda: "i3" in ids(lake), "landed")
    assert ids(lake) == ["i1", "i2", "i3"]


def dies_at(nth: int, patched: pytest.MonkeyPatch) -> None:
    """Let the process die before the nth time from now on that something is made durable, and at each one after it."""
    calls, durable = count(1), landing.make_durable

    def dies(path: Path) -> None:
        if next(calls) >= nth:
            raise Killed
        durable(path)

    patched.setattr(landing, "make_durable", dies)


@pytest.mark.long
@pytest.mark.processes
def test_every_issue_lands_once_though_the_receiver_is_killed_again_and_again(api: Path, lake: Lake) -> None:
    last = 0
    for turn in range(4):
        process = subprocess.Popen(
            [sys.executable, "-m", "streaming.service", "receive", "lines", str(os.getpid())],
            env={**os.environ, "TIDEMARK_HOME": lake.root, "TIDEMARK_PIPELINES": "tests.support.pipelines"},
        )
        # The instant of the kill is that of a landing, by chance before, in or behind it.
        for _ in range(10):
            add(api, last + 1, last + 2)
            last += 2
            until(lambda: len(ids(lake)) >= last - 2, "landed", within=60)  # noqa: B023
        if turn < 3:
            process.kill()
            process.wait()
        assert len({*ids(lake)}) == len(ids(lake))
    until(lambda: len(ids(lake)) == last, "landed", within=60)
    process.terminate()
    assert process.wait(20) == 0
    assert sorted(ids(lake), key=lambda name: int(name[1:])) == [f"i{at}" for at in range(1, last + 1)]
