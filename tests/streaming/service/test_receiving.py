"""Receivers at work against real sockets, websockets and HTTP servers: what lands, and how often."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Generator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from threading import Event
from typing import ClassVar

import pytest
from rich.console import Console

from platform_assets.texts.receivers import receiver_line, receiver_table
from streaming import Connector, HttpPoll, Lake, Received, Reception, TcpSocket, Websocket
from streaming.base.errors import LeaseError, ReceiverError
from streaming.service import receivers, retries
from streaming.service.alerts import evaluate
from streaming.service.lease import take_lease
from streaming.service.overview import look
from streaming.service.receiver_status import ReceiverPlace, ReceiverReport, receivers_of
from streaming.service.receivers import Receiving
from streaming.sources import LandingGuarantee
from tests.support.pipelines.polled import URL
from tests.support.pipelines.received import PORT
from tests.support.pipelines.received import pipeline as of_a_process
from tests.support.receiving import landed, landed_rows, received, running
from tests.support.servers import Answer, Asked, city_server, line_server, polled_server
from tests.support.waiting import until

SOON = "50 milliseconds"


@pytest.fixture(autouse=True)
def patient_a_moment_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "_FIRST_RETRY", 0.05)


def test_lines_land_by_number_by_age_and_at_the_end(lake: Lake) -> None:
    with line_server() as server:
        by_number = received(TcpSocket("127.0.0.1", server.port), rows_per_file=2, every="1 hour")
        with running(lake, by_number) as run:
            server.send(b"a\nb\n")
            until(lambda: landed(lake) == [["a", "b"]], "landed by number")
            server.send(b"c\nunfini")
            until(lambda: run.rows == 3, "received")
            assert landed(lake) == [["a", "b"]]
        assert landed(lake) == [["a", "b"], ["c"]]
        assert (run.status.state, run.status.landed, run.status.files, run.error) == ("stopped", 3, 2, [])
        by_age = received(TcpSocket("127.0.0.1", server.port), every=SOON)
        with running(lake, by_age):
            until(lambda: server.connected == 2, "connected")
            server.send(b"d\n")
            until(lambda: landed_rows(lake) == ["a", "b", "c", "d"], "landed by age")


@pytest.mark.long
def test_a_server_that_goes_and_comes_is_connected_to_again_and_what_it_sent_lands_meanwhile(lake: Lake) -> None:
    with line_server() as server:
        pipeline = received(TcpSocket("127.0.0.1", server.port), every="300 milliseconds")
        with running(lake, pipeline) as run:
            server.send(b"a\nthe last line has no end")
            until(lambda: run.rows == 1, "received")
            server.drop()
            until(lambda: server.connected == 2, "connected again")
            server.send(b"b\n")
            until(lambda: len(landed_rows(lake)) == 3, "landed")
            assert landed_rows(lake) == ["a", "the last line has no end", "b"]
            assert run.status.reconnects == 1
    with running(lake, pipeline) as run:
        until(lambda: run.statuses and run.status.state == "waiting", "waiting")
        assert f"tcp://127.0.0.1:{server.port} cannot be reached" in run.status.why
        (receiver,) = look(lake, pipeline).receivers
        assert (receiver.why, receiver.guarantee, receiver.away_since) == (
            run.status.why,
            "at most once",
            run.status.away_since,
        )
        # It stays away however often it is tried.
        assert receiver.away_since is not None
        overview = look(lake, pipeline)
        for minutes, raised in ((4, []), (6, ["stream_receivers_receive"])):
            alerts = evaluate(overview, pipeline.limits, receiver.away_since + timedelta(minutes=minutes))
            assert [alert.name for alert in alerts if not alert.passed] == raised
        with line_server(server.port) as again:
            again.send(b"c\n")
            until(lambda: run.rows == 1, "received from the new server")
    assert landed_rows(lake)[3:] == ["c"]


def test_while_a_supervisor_runs_each_receiver_has_to_and_its_alert_says_why_one_does_not(lake: Lake) -> None:
    """Of one that never wrote, of one whose process died, and of one whose process dies again and again."""
    (receiver,) = of_a_process.receivers
    place = ReceiverPlace.of(of_a_process, receiver)

    def told(minutes: float) -> list[str]:
        now = begun + timedelta(minutes=minutes)
        alerts = evaluate(look(lake, of_a_process), of_a_process.limits, now)
        return [alert.text for alert in alerts if not alert.passed]

    def start(minute: float) -> ReceiverReport:
        return ReceiverReport(lake, place, receiver, lambda status: None, lambda: begun + timedelta(minutes=minute))

    with take_lease(lake, of_a_process, "stream") as held:
        begun = datetime.fromisoformat(held.holder.since)
        assert told(4) == []
        assert told(6) == ["lines_in has not been running for 6 min: its process has never said a word"]

        start(-1000).change("stopped")
        assert (told(4), told(6)) == ([], ["lines_in has not been running for 6 min: it has stopped"])

        start(10).change("receiving")
        gone = f"its process, {os.getpid()}, is gone"
        assert (told(14), told(16)) == ([], [f"lines_in has not been running for 6 min: {gone}"])
        with take_lease(lake, place, "receive"):
            again = start(16)
            again.connect()
            (text,) = told(16)
            assert text.endswith(f"for 6 min: its process before, {os.getpid()}, died")
            again.change("receiving")
            assert told(16) == []
        start(17).connect()
        start(18).connect()
        assert (told(20), told(22)) == ([], [f"lines_in has not been running for 6 min: {gone}"])
    assert told(1000) == []


def test_a_line_that_is_too_long_is_refused_and_counted(lake: Lake) -> None:
    with line_server() as server, running(lake, received(TcpSocket("127.0.0.1", server.port, longest_line=5))) as run:
        server.send(b"123456\n12345\n" + b"x" * 200_000 + b"\nok\n")
        until(lambda: run.rows == 2, "received")
        until(lambda: run.status.refused == 2, "counted")
    assert landed_rows(lake) == ["12345", "ok"]


def test_a_line_that_a_broken_connection_has_cut_off_is_refused_and_no_row(lake: Lake) -> None:
    with line_server() as server, running(lake, received(TcpSocket("127.0.0.1", server.port), every=SOON)) as run:
        server.send(b"a,100\nb,12")
        until(lambda: landed_rows(lake) == ["a,100"], "landed")
        server.break_off()
        until(lambda: run.status.refused == 1, "counted")
        until(lambda: server.connected == 2, "connected again")
    assert landed_rows(lake) == ["a,100"]


def test_one_process_at_a_time_runs_a_receiver(lake: Lake) -> None:
    with line_server() as server:
        pipeline = received(TcpSocket("127.0.0.1", server.port))
        with running(lake, pipeline) as run:
            until(lambda: run.statuses, "running")
            second = Receiving(lake, pipeline, pipeline.receivers[0], Event())
            with pytest.raises(LeaseError, match=r"receiver 'lines_in' of pipeline 'lines' is run by process \d+ on"):
                second.run(wait=0.1)


def test_what_cannot_be_written_is_kept_and_holds_up_the_source(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    full = Event()
    full.set()
    add = receivers.LandingFolder.add

    def write(folder: receivers.LandingFolder, rows: Received) -> None:
        if full.is_set() and rows.rows:
            raise OSError(28, "No space left on device")
        add(folder, rows)

    monkeypatch.setattr(receivers.LandingFolder, "add", write)
    with line_server() as server, running(lake, received(TcpSocket("127.0.0.1", server.port), every=SOON)) as run:
        server.send(b"a\n")
        until(lambda: run.statuses and "No space left" in run.status.why, "waiting for the disk")
        server.send(b"b\n")
        assert run.rows == 0
        full.clear()
        until(lambda: landed_rows(lake) == ["a", "b"], "landed")
        until(lambda: (run.status.state, run.status.why) == ("receiving", ""), "receiving again")


def test_messages_of_a_websocket_land_one_a_row_and_one_that_is_too_large_is_refused(lake: Lake) -> None:
    with city_server({"BER": ['{"n":\n 1}', "two"]}) as server:
        connector = Websocket(server.url, opening=('{"city": "BER"}',), longest_message=100)
        with running(lake, received(connector)) as run:
            until(lambda: run.rows == 2, "received")
            server.push("x" * 101)
            until(lambda: run.status.refused == 1, "refused")
            # The connection ends with it, and the next one begins as the first did.
            until(lambda: run.rows == 4, "connected again")
    assert landed_rows(lake) == ['{"n":  1}', "two"] * 2


def test_secrets_go_from_the_environment_into_headers_and_nowhere_else(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    with polled_server(lambda asked: Answer(b"[1]")) as server:
        address = server.url.removesuffix("/events")
        poll = HttpPoll(f"{server.url}?key=k1", secret_headers={"Authorization": "POLL_TOKEN"})
        with running(lake, received(poll)) as run:
            until(lambda: run.statuses and run.status.state == "waiting", "waiting")
            assert run.status.why == f"{address} needs POLL_TOKEN in the environment, which is not set; set it."
            monkeypatch.setenv("POLL_TOKEN", "Bearer t0p")
            until(lambda: run.rows == 1, "received")
    assert server.asked[0].headers["Authorization"] == "Bearer t0p"
    files = (path for path in Path(lake.root).rglob("*") if path.is_file())
    assert not [path for path in files if b"t0p" in path.read_bytes() or b"k1" in path.read_bytes()]


class Events:
    """An API of numbered events: answers with up to two behind a cursor."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.broken = 0

    def __call__(self, asked: Asked) -> Answer:
        if self.broken:
            self.broken -= 1
            return Answer(status=429, headers=(("Retry-After", "0"),)) if self.broken else Answer(status=503)
        behind = int(asked.query.get("since", 0))
        numbers = range(behind + 1, min(behind + 2, self.count) + 1)
        body = {"items": [{"n": number} for number in numbers], "next": numbers[-1] if numbers else behind}
        return Answer(json.dumps(body).encode())


def numbers(lake: Lake) -> list[int]:
    return [json.loads(row)["n"] for row in landed_rows(lake)]


@pytest.mark.long
def test_a_polled_api_is_taken_once_through_errors_and_restarts(lake: Lake) -> None:
    api = Events(5)
    with polled_server(api) as server:
        poll = HttpPoll(server.url, every=SOON, rows_in="items", cursor_in="next", parameter="since")
        pipeline = received(poll, every="1 hour", rows_per_file=2)
        with running(lake, pipeline) as run:
            until(lambda: run.rows == 5, "received")
            assert numbers(lake) == [1, 2, 3, 4]
        api.count, api.broken = 7, 3
        with running(lake, pipeline) as run:
            until(lambda: run.rows == 2, "received")
    assert numbers(lake) == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.long
@pytest.mark.processes
def test_a_polled_api_is_taken_once_though_the_receiver_is_killed_again_and_again(lake: Lake) -> None:
    api = Events(0)
    with polled_server(api) as server:
        for most in (7, 15, 30):
            api.count = most
            process = receiver_process(lake, "polled", URL, server.url)
            # It has asked for what lies behind the last one that it was to be killed at, and landed some or none of it.
            until(lambda: server.asked and int(server.asked[-1].query.get("since", 0)) >= most - 2, "asked", within=60)  # noqa: B023
            process.kill()
            process.wait()
            assert numbers(lake) == list(range(1, len(numbers(lake)) + 1))
        process = receiver_process(lake, "polled", URL, server.url)
        until(lambda: len(numbers(lake)) == 30, "landed", within=60)
        process.terminate()
        assert process.wait(20) == 0
    assert numbers(lake) == list(range(1, 31))


def test_without_a_cursor_each_answer_that_differs_lands_once_and_an_etag_is_sent_back(lake: Lake) -> None:
    newest = [1]

    def answer(asked: Asked) -> Answer:
        tag = f'"v{newest[0]}"'
        if asked.headers.get("If-None-Match") == tag:
            return Answer(status=304)
        return Answer(json.dumps([{"n": newest[0]}]).encode(), headers=(("ETag", tag),))

    with polled_server(answer) as server:
        pipeline = received(HttpPoll(server.url, every=SOON), every=SOON)
        with running(lake, pipeline):
            until(lambda: len(server.asked) > 3, "asked again and again")
            newest[0] = 2
            until(lambda: numbers(lake) == [1, 2], "landed")
        asked = len(server.asked)
        with running(lake, pipeline):
            until(lambda: len(server.asked) > asked + 2, "asked again after a restart")
    assert numbers(lake) == [1, 2]


@pytest.mark.long
def test_a_server_that_says_how_long_to_wait_is_left_alone_for_so_long(lake: Lake) -> None:
    at: list[float] = []

    def answer(asked: Asked) -> Answer:
        at.append(time.monotonic())
        return Answer(b"[1]") if len(at) > 1 else Answer(status=503, headers=(("Retry-After", "1"),))

    with polled_server(answer) as server, running(lake, received(HttpPoll(server.url))) as run:
        until(lambda: run.rows == 1, "received")
        assert any("answers 503 Service Unavailable" in status.why for status in run.statuses)
    assert at[1] - at[0] >= 1


@dataclass(frozen=True)
class LateToFail(Connector):
    """Takes its time before it fails: with rows that have no cursor, or with no word at all."""

    guarantee: ClassVar[LandingGuarantee] = "exactly once"
    rows: tuple[bytes, ...]
    connections: ClassVar[int] = 0

    @property
    def address(self) -> str:
        return "late"

    def receive(self, reception: Reception) -> Generator[Received, None, None]:
        type(self).connections += 1
        yield Received()
        began = time.monotonic()
        while time.monotonic() - began < 2 * receivers._STEADY:
            if self.rows:
                yield Received(self.rows)
        raise ReceiverError("the last page is broken")


@pytest.mark.parametrize("rows", [(), (b"a",)])
def test_a_run_that_fails_late_is_a_repetition_and_waited_for_longer_each_time(
    rows: tuple[bytes, ...], lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receivers, "_STEADY", 0.2)
    before = LateToFail.connections
    with running(lake, received(LateToFail(rows))) as run:
        until(lambda: LateToFail.connections >= before + 3, "tried again")
        until(lambda: run.status.state == "waiting", "waiting")
    assert run.status.reconnects == 0 and landed(lake) == []


@dataclass(frozen=True)
class Acknowledged(Connector):
    """A queue that gives each message again until somebody says that it is done with it."""

    guarantee: ClassVar[LandingGuarantee] = "at least once"
    queue: ClassVar[list[bytes]] = []
    breaks: ClassVar[list[str]] = []

    @property
    def address(self) -> str:
        return "queue"

    def receive(self, reception: Reception) -> Generator[Received, None, None]:
        taken = 0
        while True:
            message = self.queue[taken : taken + 1]
            taken += len(message)
            yield Received(message, landed=partial(self.queue.remove, message[0]) if message else None)
            if self.breaks:
                raise ReceiverError(self.breaks.pop())
            if not message:
                time.sleep(0.05)


def test_a_queue_keeps_what_is_not_landed_and_gives_it_again(lake: Lake) -> None:
    Acknowledged.queue[:] = [b"a", b"b", b"c"]
    with running(lake, received(Acknowledged(), every="1 hour", rows_per_file=3)) as run:
        until(lambda: landed(lake) == [["a", "b", "c"]], "landed")
        assert Acknowledged.queue == []
        Acknowledged.breaks.append("the connection is lost")
        Acknowledged.queue.append(b"d")
        until(lambda: run.status.reconnects, "connected again")
        until(lambda: run.rows == 4, "given again")
        assert Acknowledged.queue == [b"d"]
        Acknowledged.breaks.append("and again")
        until(lambda: run.status.discarded == 1 and run.rows == 4, "given once more")
    assert landed_rows(lake) == ["a", "b", "c", "d"]
    assert Acknowledged.queue == []


@dataclass(frozen=True)
class Forgetful(Connector):
    """A source that keeps rows, but has lost some by the next connection for each word in `losses`."""

    guarantee: ClassVar[LandingGuarantee] = "at least once"
    losses: ClassVar[list[str]] = []
    known: ClassVar[list[object]] = []

    @property
    def address(self) -> str:
        return "forgetful"

    def receive(self, reception: Reception) -> Generator[Received, None, None]:
        self.known.append(reception.cursor)
        yield Received(cursor="session", waits=True, lost=self.losses.pop() if self.losses else "")
        while True:
            time.sleep(0.05)
            yield Received()


def test_what_a_source_has_lost_is_told_by_an_alert_for_a_while_and_in_the_status_from_then_on(lake: Lake) -> None:
    pipeline = received(Forgetful(), every="1 hour")
    Forgetful.known.clear()
    with running(lake, pipeline) as run:
        until(lambda: run.statuses and run.status.state == "receiving", "connected")
        assert (run.status.losses, run.status.lost, run.status.lost_at) == (0, "", None)
    Forgetful.losses.append("the session is gone")
    for losses in (1, 0):
        with running(lake, pipeline) as run:
            until(lambda: run.statuses and run.status.state == "receiving", "connected again")
            until(lambda: run.status.losses == losses and run.status.lost_at, "told")  # noqa: B023
        overview = look(lake, pipeline)
        (receiver,) = overview.receivers
        assert (receiver.lost, receiver.why) == ("the session is gone", "")
        assert receiver.lost_at is not None
        for minutes, raised in ((9, ["stream_receivers_receive"]), (11, [])):
            alerts = evaluate(overview, pipeline.limits, receiver.lost_at + timedelta(minutes=minutes))
            assert [alert.name for alert in alerts if not alert.passed] == raised
        assert "UTC (the session is gone)" in receiver_line(receiver)
        console = Console(width=200, record=True, file=io.StringIO())
        console.print(receiver_table([receiver], receiver.lost_at + timedelta(hours=2)))
        assert "lost rows 2 h 0 min ago" in console.export_text()
    assert Forgetful.known == [None, "session", "session"], "the next connection knows its cursor, without a row"


@pytest.mark.long
@pytest.mark.processes
def test_a_receiver_that_is_killed_leaves_hidden_files_only_and_the_next_one_lands_their_rows(
    lake: Lake,
) -> None:
    with line_server() as server:
        for round_ in range(3):
            process = receiver_process(lake, "received", PORT, str(server.port))
            until(lambda: server.connected == round_ + 1, "connected", within=60)  # noqa: B023
            server.send(f"{round_}a\n{round_}b\n{round_} half".encode())
            until(lambda: _hidden(lake).count(b"\n") == 2, "written")
            if round_ < 2:
                process.kill()
                process.wait()
                assert len(landed_rows(lake)) == 2 * round_
                (receiver,) = receivers_of(lake, of_a_process)
                assert (receiver.state, "is gone" in receiver.why) == ("stopped", True)
            else:
                process.terminate()
                assert process.wait(20) == 0
    assert landed_rows(lake) == ["0a", "0b", "1a", "1b", "2a", "2b"]
    (receiver,) = receivers_of(lake, of_a_process)
    assert (receiver.state, receiver.why, receiver.left_behind) == ("stopped", "", 2)


def receiver_process(lake: Lake, pipeline: str, variable: str, value: str) -> subprocess.Popen[bytes]:
    """The receivers of a pipeline as their supervisor starts them; the environment of the tests has the rest."""
    return subprocess.Popen(
        [sys.executable, "-m", "streaming.service", "receive", pipeline, str(os.getpid())],
        env={**os.environ, "TIDEMARK_HOME": lake.root, variable: value},
    )


def _hidden(lake: Lake) -> bytes:
    return b"".join(path.read_bytes() for path in Path(lake.path("landing/lines/.lines_in")).glob("lines_in-*"))
