"""Dead letters of a delivery on their way to a target of their own: each refusal once, of batches that are done."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming import KafkaTopic, Lake, Pipeline
from streaming.audit.deliveries import audit_delivery
from streaming.base.errors import DeclarationError, ProgressError
from streaming.declare.delivered import DEAD_LETTER
from streaming.declare.delivery import Delivery
from streaming.deliveries.ledger import SCHEMA
from streaming.operations.redeliver import begin_anew, redeliver
from streaming.sinks.files import JsonLines
from streaming.sinks.rest import Rest
from streaming.tables import delta
from tests.support.delivering import Courier, by_id, ingested, pipeline, reading, readings, visits
from tests.support.http_server import HttpServer, http_server
from tests.support.instants import NOW
from tests.support.kafka import Broker
from tests.support.received import received
from tests.support.runs import run

_NUMBERS = itertools.count()


@pytest.fixture
def server() -> Iterator[HttpServer]:
    with http_server() as started:
        yield started


@pytest.fixture
def topic() -> str:
    """A name that no other test has."""
    return f"letters-{next(_NUMBERS)}"


def refuses(server: HttpServer, *values: int) -> None:
    server.answer = lambda posted: 422 if {*values} & {row["value"] for row in posted.rows} else 200


def told(lake: Lake) -> list[tuple[Any, ...]]:
    """Payload and attempt of what lies in the files of `dead`, in order."""
    paths = sorted(Path(lake.root, "dead").glob("*.json"))
    letters = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
    return [(json.loads(letter["payload"])["value"], letter["attempt"]) for letter in letters]


@pytest.mark.long
def test_d7_what_a_sink_refuses_goes_to_the_dead_letter_topic_with_error_attempt_and_origin(
    spark: SparkSession, lake: Lake, kafka: Broker, server: HttpServer, topic: str
) -> None:
    kafka.create(topic)
    refuses(server, 2)
    post = Delivery("post", readings, Rest(server.url), select=("value",))
    failures = Delivery("failures", post, KafkaTopic(kafka.servers, topic, progress=f"progress-of-{topic}"))
    # Whatever their order, dead letters come after what they are of.
    both = Pipeline(readings, (by_id,), deliveries=(failures, post))
    run(spark, lake, both, [reading("a", 1, value) for value in (1, 2, 3)])
    run(spark, lake, both, [reading("a", 2, 4)])

    (letter,) = [record.json for record in received(kafka, topic)]
    assert tuple(letter) == DEAD_LETTER
    assert letter.pop("error").startswith("422 ")
    assert {name: letter[name] for name in ("payload", "attempt", "origin", "batch", "position")} == {
        **{"payload": '{"value":2}', "attempt": 1, "batch": 0, "position": 1},
        "origin": {"unit": 0, "row": 1},
    }
    assert [row["value"] for posted in server.taken for row in posted.rows] == [1, 3, 4]
    assert [finding.broken for finding in audit_delivery(spark, lake, failures)] == [0, 0]


@pytest.mark.long
def test_only_those_of_batches_that_are_done_are_told_and_each_attempt_once(
    spark: SparkSession, lake: Lake, server: HttpServer
) -> None:
    """The process dies once two rows are put aside; repeated, one is refused, then again after `redeliver`."""
    post = Delivery("post", readings, Rest(server.url), select=("value",))
    failures = Delivery("failures", post, JsonLines("dead", by="none"))
    ingested(spark, lake, [reading("a", 1, value) for value in range(4)])
    refuses(server, 0, 1)
    dying, letters = Courier(spark, lake, post), Courier(spark, lake, failures)
    assert letters.deliver() == 0
    put_aside = dying.runtime.dead_letters.put_aside

    def dies(*args: Any) -> None:
        put_aside(*args)
        raise KeyboardInterrupt

    dying.runtime.dead_letters.put_aside = dies  # type: ignore[method-assign, assignment]
    with pytest.raises(KeyboardInterrupt):
        dying.deliver(all_of_it=True)
    assert dying.runtime.dead_letters.count() == 2
    assert letters.deliver() == 0

    refuses(server, 1)
    again = Courier(spark, lake, post)
    again.deliver()
    assert (letters.deliver(), letters.deliver(), told(lake)) == (1, 0, [(1, 1)])

    again.runtime.dead_letters.ask(0, again.runtime.standing().delivered)
    again.deliver()
    assert (letters.deliver(), told(lake)) == (1, [(1, 1), (1, 2)])
    refuses(server)
    again.runtime.dead_letters.ask(0, again.runtime.standing().delivered)
    again.deliver()
    assert again.runtime.dead_letters.count() == 0
    anew = Courier(spark, lake, failures)
    assert (anew.deliver(), told(lake)) == (0, [(1, 1), (1, 2)])

    # What was told stays, so all of it can be told again.
    anew.runtime.begin_anew(again=True)
    anew.deliver()
    assert told(lake) == [(1, 1), (1, 2)] * 2


@pytest.mark.long
def test_dead_letters_of_a_delivery_that_begins_anew_go_on(spark: SparkSession, lake: Lake, server: HttpServer) -> None:
    post = Delivery("post", readings, Rest(server.url), select=("value",))
    failures = Delivery("failures", post, JsonLines("dead", by="none"))
    ingested(spark, lake, [reading("a", 1, value) for value in range(3)])
    refuses(server, 1)
    courier, letters = Courier(spark, lake, post), Courier(spark, lake, failures)
    courier.deliver(all_of_it=True)
    courier.runtime.begin_anew(again=True)
    # Those of the generation before, though nobody had looked by then.
    assert (letters.deliver(), told(lake)) == (1, [(1, 1)])
    courier.deliver(all_of_it=True)
    assert (letters.deliver(), told(lake)) == (1, [(1, 1), (1, 1)])


@pytest.mark.long
def test_dead_letters_of_an_earlier_declaration_are_told_and_go_once_all_rows_are_sent_again(
    spark: SparkSession, lake: Lake, server: HttpServer
) -> None:
    post = Delivery("post", readings, Rest(server.url), select=("value",))
    ingested(spark, lake, [reading("a", 1, value) for value in range(3)])
    refuses(server, 1)
    Courier(spark, lake, post).deliver(all_of_it=True)
    other = replace(post, where="value < 9")
    courier = Courier(spark, lake, other)
    courier.runtime.begin_anew(again=False)
    refuses(server)
    done = redeliver(spark, lake, pipeline(other), other, lambda: NOW)
    assert (done.dead_before, done.dead_after, done.earlier) == (1, 1, 1)
    refuses(server, 2)
    done = begin_anew(spark, lake, pipeline(other), other, again=True, now=lambda: NOW)
    assert done.dead_after == 2, "the old one, of which others may be told, and that of another row"
    refuses(server)
    done = redeliver(spark, lake, pipeline(other), other, lambda: NOW)
    assert (done.dead_before, done.dead_after, done.earlier) == (1, 0, 0), "of the old one all has arrived"
    assert [row["value"] for posted in server.taken for row in posted.rows] == [0, 2, 0, 1, 2]


def test_a_batch_without_refusals_reads_no_payload_of_a_dead_letter(
    spark: SparkSession, lake: Lake, server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    post = Delivery("post", readings, Rest(server.url), select=("value",))
    ingested(spark, lake, [reading("a", 1, value) for value in range(3)])
    refuses(server, 1)
    courier = Courier(spark, lake, post)
    courier.deliver(all_of_it=True)
    courier.runtime.dead_letters.ask(0, 0)
    courier.deliver(all_of_it=True)
    assert courier.runtime.dead_letters.count() == 1, "asked for, and refused again"

    read, contents = list[Any](), delta.contents

    def noted(*args: Any, **options: Any) -> Any:
        read.append(options)
        return contents(*args, **options)

    monkeypatch.setattr(delta, "contents", noted)
    ingested(spark, lake, [reading("a", 2, 4)])
    again = Courier(spark, lake, post)
    again.deliver(all_of_it=True)
    assert read and {*map(str, read)} == {"{'columns': ['generation', 'batch']}"}


@pytest.mark.long
def test_a_topic_that_has_lost_its_progress_is_refused_with_what_to_do(
    spark: SparkSession, lake: Lake, kafka: Broker, topic: str
) -> None:
    kafka.create(topic)
    delivery = Delivery("rows_out", readings, KafkaTopic(kafka.servers, topic, progress=f"progress-of-{topic}"))
    ingested(spark, lake, [reading("a", 1, 1)])
    Courier(spark, lake, delivery).deliver()
    kafka.delete(f"progress-of-{topic}")
    ingested(spark, lake, [reading("a", 1, 2)])
    courier = Courier(spark, lake, delivery)
    with pytest.raises(ProgressError, match=r"got there up to batch -1, and the lake that it is at batch 0.* --all"):
        courier.deliver()
    assert [record.json["value"] for record in received(kafka, topic)] == [1]
    courier.runtime.begin_anew(again=True)
    courier.deliver()
    assert [record.json["value"] for record in received(kafka, topic)] == [1, 1, 2]


def test_what_is_declared_is_checked() -> None:
    out = Delivery("out", readings, JsonLines("out"))
    dead = Delivery("dead_out", out, JsonLines("dead"))
    assert (dead.what, dead.folder, tuple(dead.selected), dead.depth) == ("dead", "readings", DEAD_LETTER, 1)
    assert tuple(SCHEMA.names) == DEAD_LETTER
    with pytest.raises(DeclarationError, match=r"is nothing that a delivery has; use 'dead'. Of a stream it can be"):
        Delivery("dead_out", out, JsonLines("dead"), "rows")
    with pytest.raises(DeclarationError, match=r"is nothing that a view has; .* Of a delivery it can be"):
        Delivery("dead_out", visits, JsonLines("dead"), "dead")
    with pytest.raises(DeclarationError, match="is of 'out', which pipeline 'readings' does not have"):
        pipeline(dead)
    with pytest.raises(DeclarationError, match="column 'kind', which KafkaTopic of delivery 'out' needs, is not"):
        Delivery("out", readings, KafkaTopic("broker:9092", topic_column="kind"))
