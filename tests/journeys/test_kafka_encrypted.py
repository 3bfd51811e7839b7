"""Rows from a topic and into one over TLS, with a password that nobody ever sees."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming import Delivery, Kafka, KafkaTopic, Lake, Pipeline
from streaming.base import SourceError
from streaming.declare.stream import Stream
from streaming.sources.kafka import client
from tests.support.certificates import self_signed
from tests.support.kafka import ROOT, SECRET, Broker
from tests.support.received import received
from tests.support.runs import run
from tests.support.topics import event, piped, values

FROM, TO = "encrypted", "encrypted-too"
_PATIENCE = 3.0


@pytest.fixture
def trusting(kafka: Broker, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The options of a client that the broker knows, and that knows the broker."""
    kafka.let_in()
    monkeypatch.setenv("KAFKA_PASSWORD", SECRET)
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": ROOT,
        "sasl.password": "${KAFKA_PASSWORD}",
        "ssl.ca.location": str(kafka.certificate),
    }


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Who asks does not wait long for an answer."""
    monkeypatch.setattr(client, "_REQUEST_WITHIN", _PATIENCE)
    monkeypatch.setattr("streaming.sinks.kafka.sink._ANSWERS_WITHIN", _PATIENCE)
    yield
    client.client_of.cache_clear()


def delivering(kafka: Broker, stream: Stream, options: dict[str, str]) -> Delivery:
    return Delivery("on", stream, KafkaTopic(kafka.encrypted, TO, options=options), select=("value",))


def encrypted(kafka: Broker, options: dict[str, str]) -> Pipeline:
    """From one topic into another, both over TLS."""
    pipeline = piped(Kafka(kafka.encrypted, FROM, options=options))
    return replace(pipeline, deliveries=(delivering(kafka, pipeline.stream, options),))


def test_rows_come_and_go_over_tls_and_no_secret_is_printed_kept_or_logged(
    spark: SparkSession, lake: Lake, kafka: Broker, trusting: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    for topic in (FROM, TO):
        kafka.create(topic)
    kafka.send(FROM, [event(1), event(2)])
    for options in (trusting, {**trusting, "sasl.password": SECRET}):
        pipeline = encrypted(kafka, options)
        assert run(spark, lake, pipeline).waiting == {}
        assert SECRET not in repr(pipeline)
        kafka.send(FROM, [event(3)])
    assert values(spark, lake, pipeline) == [1, 2, 3]
    assert [record.json["value"] for record in received(kafka, TO)] == [1, 2, 3]
    kept = [path for path in Path(lake.root).rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert kept == []
    assert caplog.text and SECRET not in caplog.text


@pytest.mark.long
def test_a_broker_that_is_not_trusted_and_a_password_that_is_not_right_are_told_with_what_to_do(
    spark: SparkSession,
    lake: Lake,
    kafka: Broker,
    trusting: dict[str, str],
    impatient: None,
    tmp_path: Path,
) -> None:
    stranger = {**trusting, "ssl.ca.location": str(self_signed(tmp_path))}
    forgotten = {**trusting, "sasl.password": f"not {SECRET}"}
    no_file = {**trusting, "ssl.ca.location": "nowhere.pem"}
    for options, reason in (
        (stranger, r"certificate verify failed.*Name the PEM file of who signed .* in ssl\.ca\.location"),
        (forgotten, r"Authentication failed.*Correct sasl\.username, sasl\.password and sasl\.mechanism"),
        (no_file, r"no client of Kafka can be made \(.*ssl\.ca\.location failed.*correct the options\."),
    ):
        with pytest.raises(SourceError, match=reason) as refused:
            run(spark, lake, encrypted(kafka, options))
        assert SECRET not in str(refused.value)

    pipeline = piped(Kafka(kafka.servers, FROM))
    drained = run(spark, lake, replace(pipeline, deliveries=(delivering(kafka, pipeline.stream, stranger),)))
    assert "ssl.ca.location" in drained.waiting["on"] and SECRET not in drained.waiting["on"]
