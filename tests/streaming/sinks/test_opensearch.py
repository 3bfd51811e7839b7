"""Rows to a real OpenSearch: documents by key and revision, none twice, and what a mapping refuses is put aside."""

from __future__ import annotations

import itertools
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from streaming import Delivery, Lake
from streaming.audit.laws import audit
from streaming.base.errors import SinkError, StreamingError
from streaming.sinks.opensearch import OpenSearchIndex, actions, refusals
from streaming.sinks.sink import CHANGE, REVISION, Delivered, NumberedBatch, RefusedRow
from streaming.views.corrections import correct, plan
from tests.streaming.sinks.contract import LAWS, Arrivals, deliver
from tests.support.delivering import Courier, pipeline, reading, visits
from tests.support.instants import NOW, at
from tests.support.opensearch import opensearch
from tests.support.runs import run
from tests.support.seeds import draws
from tests.support.services import starting

ORDERS = OpenSearchIndex("http://127.0.0.1:1", "orders", key=("id",))


def test_urls_and_names_that_cannot_be_are_refused_and_no_secret_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"url": "search.example"}, "is no address; write 'https://host:9200'."),
        ({"url": "https://alice:secret@search.example"}, "to 'search.example' has a user or password in it"),
        ({"index": "Orders"}, "index='Orders' of OpenSearchIndex cannot be the name of an index"),
        ({"index": "_orders"}, "index='_orders' of OpenSearchIndex cannot be the name of an index"),
        ({"index": "a/b"}, "index='a/b' of OpenSearchIndex cannot be the name of an index"),
        ({"key": "id"}, "key of OpenSearchIndex is 'id', a str"),
        ({"user": "alice"}, "user='alice' and password=None of OpenSearchIndex belong together"),
        ({"flush": "soon"}, "soon"),
    )
    for wrong, text in cases:
        with pytest.raises(StreamingError, match=re.escape(text)) as raised:
            replace(ORDERS, **wrong)
        assert "secret" not in str(raised.value)
    named = replace(ORDERS, user="alice", password="SEARCH_PASSWORD")
    with pytest.raises(SinkError, match="'alice' is to be in SEARCH_PASSWORD, which is not set"):
        named.connect(Lake("/nowhere"), Delivered("a/b"))
    with pytest.raises(SinkError, match=r"127\.0\.0\.1:1/orders is away: ConnectError"):
        deliver(ORDERS.connect(Lake("/nowhere"), DELIVERED), changes(0, ("a", 1, 1.0)))
    monkeypatch.setenv("SEARCH_PASSWORD", "open sesame")
    assert "open sesame" not in repr(named.connect(Lake("/nowhere"), Delivered("a/b")))


Change = tuple[str | None, int, float | None]
"""A key, a revision, and the value that it has from then on; None where it is deleted."""

DELIVERED = Delivered("orders/all", "lake", key=("id",), changes=True)


def changes(number: int, *given: Change) -> NumberedBatch:
    rows = {
        "id": pa.array([key for key, _, _ in given], pa.string()),
        "amount": pa.array([value for _, _, value in given], pa.float64()),
        REVISION: pa.array([revision for _, revision, _ in given], pa.int64()),
        CHANGE: ["delete" if value is None else "upsert" for _, _, value in given],
        "_reason": ["first"] * len(given),
    }
    return NumberedBatch("orders/all", 0, number, pa.table(rows))


def told(batch: NumberedBatch, delivered: Delivered) -> list[Any]:
    """The lines of a bulk request as JSON."""
    return [json.loads(line) for action in actions(batch, delivered) for line in action.lines.splitlines()]


def test_a_row_of_a_key_is_a_document_of_its_revision_and_a_delete_has_none() -> None:
    assert told(changes(0, ("a", -5, 1.5), (None, 0, None), ("a", 7, None)), DELIVERED) == [
        {"index": {"_id": '["a"]', "version": 2**62 - 5, "version_type": "external_gte"}},
        {"id": "a", "amount": 1.5},
        {"delete": {"_id": "[null]", "version": 2**62, "version_type": "external_gte"}},
        {"delete": {"_id": '["a"]', "version": 2**62 + 7, "version_type": "external_gte"}},
    ]
    zeros = pa.table({"id": [0.0, -0.0], REVISION: [1, 2]})
    one, other = told(NumberedBatch("orders/all", 0, 0, zeros), DELIVERED)[::2]
    assert one["index"]["_id"] == other["index"]["_id"] == "[0.0]"
    long, longer = (told(changes(0, (key, 1, 1.0)), DELIVERED)[0]["index"]["_id"] for key in ("x" * 508, "x" * 509))
    assert (len(long), len(longer)) == (512, 64)


def test_a_row_without_a_key_is_the_document_of_its_place_in_this_delivery_and_no_other() -> None:
    def ids(delivered: Delivered, number: int) -> set[str]:
        return {
            action["index"]["_id"] for action in told(changes(number, ("a", 1, 1.0), ("a", 1, 1.0)), delivered)[::2]
        }

    one = replace(DELIVERED, key=())
    assert ids(one, 0) == ids(one, 0) and len(ids(one, 0)) == 2
    assert not ids(one, 0) & (ids(one, 1) | ids(replace(one, identity="another"), 0))


def test_an_answer_is_about_the_row_or_about_the_server() -> None:
    def answer(status: int, kind: str = "", reason: str = "") -> dict[str, Any]:
        return {"index": {"status": status, **({"error": {"type": kind, "reason": reason}} if kind else {})}}

    there = (answer(200), answer(201), {"delete": {"status": 404}}, answer(409, "version_conflict", "older"))
    assert refusals(there, "here") == [None] * 4
    assert refusals([answer(400, "mapper_parsing_exception", "bad\nvalue"), answer(200)], "here") == [
        "400 mapper_parsing_exception: bad value",
        None,
    ]
    for away in (
        answer(429, "rejected_execution_exception", "full"),
        answer(404, "index_not_found_exception", "none"),
        answer(400, "index_closed_exception", "closed"),
        answer(400, "illegal_argument_exception", "no write index is defined for alias [a]"),
        answer(400, "illegal_argument_exception", "pipeline with id [a] does not exist"),
        answer(
            400, "illegal_argument_exception", "only write ops with an op_type of create are allowed in data streams"
        ),
        answer(403, "cluster_block_exception", "read-only"),
    ):
        with pytest.raises(SinkError, match="here does not take rows now"):
            refusals([answer(200), away], "here")


def test_a_reason_that_all_rows_of_a_request_share_is_none_of_a_row_unless_it_can_be_no_other() -> None:
    def unknown(reason: str) -> dict[str, Any]:
        return {"index": {"status": 400, "error": {"type": "illegal_argument_exception", "reason": reason}}}

    alone, too_long = unknown("what nobody has foreseen"), unknown("Document contains at least one immense term in")
    text = "400 illegal_argument_exception: what nobody has foreseen"
    assert refusals([alone], "here") == [text]
    assert refusals([alone, {"index": {"status": 201}}, alone], "here") == [text, None, text]
    with pytest.raises(SinkError, match="here does not take rows now: 400 illegal_argument_exception: what nobody"):
        refusals([alone, alone], "here")
    assert None not in refusals([too_long, too_long], "here")


@contextmanager
def serving(*, index: str = "{}", others: str = "{}") -> Iterator[str]:
    """The URL of what answers with 200 and `index` when it is asked about an index, and with `others` otherwise."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(others if self.path.endswith("/_count") else index)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self._answer(others)

        def _answer(self, body: str) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            """Silence."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.server_address[1]}"
        finally:
            listening.shutdown()
            thread.join()


@pytest.mark.parametrize(
    "body",
    [
        *("<html>Sign in</html>", "[]", "null", "{}", '{"items": {}}', '{"items": []}', '{"items": [{}]}', '{"a": 1}'),
        *('{"items": [{"index": {}}]}', '{"items": [null]}', '{"items": [{"index": {"status": 400, "error": "no"}}]}'),
        '{"items": [{"index": {"status": 400, "error": {"type": "a", "caused_by": "b"}}}]}',
    ],
)
def test_an_answer_that_is_none_of_opensearch_is_told_and_loses_nothing(body: str) -> None:
    text = "gives an answer that is none of OpenSearch"
    with serving(others=body) as url:
        with pytest.raises(SinkError, match=text):
            sent(replace(ORDERS, url=url), changes(0, ("a", 1, 1.0)))
        with pytest.raises(SinkError, match=text):
            replace(ORDERS, url=url).connect(Lake("/nowhere"), DELIVERED).count()


@pytest.mark.parametrize("body", ["<html>Sign in</html>", "[]", '{"orders": 1}'])
def test_an_answer_about_an_index_that_is_none_of_opensearch_is_told(body: str) -> None:
    with serving(index=body) as url, pytest.raises(SinkError, match="gives an answer that is none of OpenSearch"):
        sent(replace(ORDERS, url=url), changes(0, ("a", 1, 1.0)))


def test_a_name_of_several_indices_and_a_data_stream_are_refused() -> None:
    for body, names in (
        ('{"orders-1": {"settings": {}}, "orders-2": {"settings": {}}}', "orders-1, orders-2"),
        ('{".ds-orders-1": {"settings": {}, "data_stream": "orders"}}', ".ds-orders-1"),
    ):
        with serving(index=body) as url, pytest.raises(SinkError, match=rf"several indices \({names}\), where a row"):
            sent(replace(ORDERS, url=url), changes(0, ("a", 1, 1.0)))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with starting("OpenSearch"), opensearch(tmp_path_factory.mktemp("opensearch")) as url:
        yield url


_numbers = itertools.count()


@pytest.fixture
def index(server: str) -> OpenSearchIndex:
    """A new one, that takes no number below 0."""
    target = OpenSearchIndex(server, f"numbers-{next(_numbers)}")
    mapping = {"properties": {"number": {"type": "unsigned_long"}, "amount": {"type": "double"}}}
    httpx.put(f"{server}/{target.index}", json={"mappings": mapping}, timeout=30).raise_for_status()
    return target


def documents(target: OpenSearchIndex) -> list[dict[str, Any]]:
    """All of an index."""
    httpx.post(f"{target.url}/{target.index}/_refresh", timeout=30).raise_for_status()
    answer = httpx.get(f"{target.url}/{target.index}/_search", params={"size": 10_000}, timeout=30)
    return [hit["_source"] for hit in answer.raise_for_status().json()["hits"]["hits"]]


@pytest.mark.long
@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_an_index_keeps_the_contract_of_targets(
    law: Callable[[Arrivals], None], keyed: bool, index: OpenSearchIndex, lake: Lake
) -> None:
    target = replace(index, key=("number",) if keyed else ())
    law(Arrivals(target, lake, lambda: [row["number"] for row in documents(target)], -1))


def sent(target: OpenSearchIndex, batch: NumberedBatch) -> list[RefusedRow]:
    return deliver(target.connect(Lake("/nowhere"), DELIVERED), batch)


@pytest.mark.long
def test_a_newer_revision_stays_and_a_delete_deletes_in_whatever_order_batches_come_again(
    index: OpenSearchIndex,
) -> None:
    target = replace(index, key=("id",))
    batches = (
        changes(0, ("a", 1, 1.0), ("b", 1, 1.0), ("c", -3, 1.0)),
        changes(1, ("a", 3, 3.0), ("b", 2, None), ("c", -2, 2.0)),
        changes(2, ("a", 2, 2.0), ("b", 2, None), ("c", -2, 2.5)),
    )
    for batch in (*batches, *batches[1:]):
        assert sent(target, batch) == []
    assert {row["id"]: row["amount"] for row in documents(target)} == {"a": 3.0, "c": 2.5}
    assert target.connect(Lake("/nowhere"), DELIVERED).count() == 2


@pytest.mark.long
def test_an_alias_of_one_index_is_taken_until_it_rolls_over(index: OpenSearchIndex) -> None:
    alias = replace(index, index=f"{index.index}-now", key=("id",))

    def write_to(name: str, *no_more: str) -> None:
        actions = [
            {"add": {"index": each, "alias": alias.index, "is_write_index": each == name}} for each in (name, *no_more)
        ]
        httpx.post(f"{index.url}/_aliases", json={"actions": actions}, timeout=30).raise_for_status()

    first, second = index.index, f"{index.index}-2"
    write_to(first)
    sink = alias.connect(Lake("/nowhere"), DELIVERED)
    sink.deliver(changes(0, ("a", 1, 1.0)), lambda refused: None)
    httpx.put(f"{index.url}/{second}", timeout=30).raise_for_status()
    write_to(second, first)
    with pytest.raises(SinkError, match=rf"an alias of several indices \({first}, {second}\)"):
        sink.deliver(changes(0, ("a", 1, 1.0)), lambda refused: None)
    sink.close()


@pytest.mark.long
def test_a_data_stream_is_refused(index: OpenSearchIndex) -> None:
    name = f"stream-{index.index}"
    template = {
        "index_patterns": [name],
        "data_stream": {},
        "template": {"mappings": {"properties": {"@timestamp": {"type": "date"}}}},
    }
    httpx.put(f"{index.url}/_index_template/{name}", json=template, timeout=30).raise_for_status()
    target = replace(index, index=name, key=("id",))
    with pytest.raises(SinkError, match="does not take rows now: 400 illegal_argument_exception"):
        sent(target, changes(0, ("a", 1, 1.0)))
    httpx.put(f"{index.url}/_data_stream/{name}", timeout=30)
    with pytest.raises(SinkError, match="is a data stream, or an alias of several indices"):
        sent(target, changes(0, ("a", 1, 1.0)))


@pytest.mark.long
def test_a_pipeline_that_is_gone_makes_no_dead_letters(index: OpenSearchIndex) -> None:
    settings = {"index": {"default_pipeline": "gone"}}
    httpx.put(f"{index.url}/{index.index}/_settings", json=settings, timeout=30).raise_for_status()
    with pytest.raises(SinkError, match="does not take rows now: 400 illegal_argument_exception: pipeline with id"):
        sent(replace(index, key=("id",)), changes(0, ("a", 1, 1.0)))


@pytest.mark.long
def test_a_text_that_is_too_long_for_its_field_is_a_dead_letter_also_where_all_of_a_request_are(
    index: OpenSearchIndex,
) -> None:
    target = replace(index, index=f"{index.index}-texts", key=("id",))
    mapping = {"properties": {"id": {"type": "keyword"}}}
    httpx.put(f"{index.url}/{target.index}", json={"mappings": mapping}, timeout=30).raise_for_status()
    longest = 32_766
    refused = sent(target, changes(0, *((name * (longest + 1), 1, 1.0) for name in "ab")))
    assert [row.position for row in refused] == [0, 1]
    assert sent(target, changes(1, ("a" * longest, 1, 1.0))) == []


@pytest.mark.long
def test_changes_drawn_at_random_end_as_the_newest_of_each_key(index: OpenSearchIndex) -> None:
    target = replace(index, key=("id",))
    draw = draws("opensearch")
    standing: dict[str, tuple[int, float | None]] = {}
    for number in range(20):
        given = [(draw.choice("abcdef"), draw.randint(-10, 10), draw.choice([None, draw.random()])) for _ in range(30)]
        assert sent(target, changes(number, *given)) == []
        if draw.random() < 0.5:
            assert sent(target, changes(number, *given)) == []
        for key, revision, value in given:
            if key not in standing or revision >= standing[key][0]:
                standing[key] = (revision, value)
    there = {row["id"]: row["amount"] for row in documents(target)}
    assert there == {key: value for key, (_, value) in standing.items() if value is not None}


@pytest.mark.long
def test_a_request_that_is_too_large_is_halved_until_the_row_alone_is_put_aside(index: OpenSearchIndex) -> None:
    rows = pa.table({"id": ["a", "x" * 2_000_000, "b"], REVISION: [1, 1, 1]})
    target = replace(index, key=())
    refused = deliver(target.connect(Lake("/nowhere"), Delivered("a/b")), NumberedBatch("a/b", 0, 0, rows))
    assert [(row.position, row.error[:3]) for row in refused] == [(1, "413")]
    assert sorted(row["id"] for row in documents(target)) == ["a", "b"]


@pytest.mark.long
def test_an_index_holds_what_is_current_after_a_late_row_has_joined_two_sessions(
    spark: SparkSession, lake: Lake, index: OpenSearchIndex
) -> None:
    delivery = Delivery("searched", visits, index, "current")
    courier = Courier(spark, lake, delivery)

    def held() -> dict[datetime, int]:
        return {
            datetime.fromisoformat(row["window_start"]): row["readings"] for row in documents(index) if row["id"] == "a"
        }

    early, later, much_later = 0, 10, 60
    run(
        spark,
        lake,
        pipeline(),
        [reading("a", early), reading("a", later)],
        [reading("a", much_later)],
        [reading("b", 61)],
    )
    courier.deliver(all_of_it=True)
    assert held() == {at(early): 1, at(later): 1}
    in_between = 5
    run(spark, lake, pipeline(), [reading("a", in_between)], [reading("b", 100)], [reading("b", 101)])
    correct(spark, lake, visits, [pending.day for pending in plan(spark, lake, visits)], lambda: NOW)
    courier.deliver(all_of_it=True)
    assert held() == {at(early): 3, at(much_later): 1}, "one session in place of two"
    found = [finding for finding in audit(spark, lake, pipeline(delivery)) if finding.law == "delivery"]
    assert [(finding.subject, finding.holds) for finding in found] == [("searched", True)] * 2
