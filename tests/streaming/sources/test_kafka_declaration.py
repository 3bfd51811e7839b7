"""All of topics as a source that needs no broker: the declaration, options, ranges of offsets, times, missing runs."""

from __future__ import annotations

import copy
import pickle
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.base.errors import DeclarationError, SourceError
from streaming.kafka import ClientOptions, client_options, for_librdkafka, for_spark, for_tasks
from streaming.sources import CommittedOffsets, Kafka
from streaming.sources.kafka.client import FIRST_BEYOND_SPARK, instants_of
from streaming.sources.kafka.memory import KafkaMemory, Ranges, beyond, joined, size, within, without, words
from streaming.sources.kafka.source import missing_runs

SERVER = "broker:9092"
SCRAM = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "ann",
    "sasl.password": 'a "b" \\',
}

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no topic": ({}, "Kafka has no topic; give it one of topic='orders'"),
    "two ways": ({"topic": "a", "pattern": "b"}, "Kafka has topic and pattern; give it one of"),
    "a list": ({"topics": ["a"]}, "topics of Kafka is ['a'], a list; write a tuple of names"),
    "no name": ({"topic": "a b"}, "'a b' cannot name a topic; use letters, digits"),
    "no pattern": ({"pattern": "("}, "pattern='(' is not a regular expression"),
    "no server": ({"servers": "broker", "topic": "a"}, "servers='broker' are no hosts and ports"),
    "no rows": ({"topic": "a", "rows_per_batch": 0}, "rows_per_batch=0 reads nothing; use 1 or more."),
    "an unknown way": ({"topic": "a", "when_lost": "ignore"}, "when_lost='ignore' is unknown; write 'stop' or 'skip'."),
    "no start": ({"topic": "a", "start": "now"}, "start='now' is no start position; write 'earliest', 'latest'"),
    "no zone": ({"topic": "a", "start": datetime(2026, 1, 1)}, "has no time zone; write which instant is meant"),
    "no partition": ({"topics": ("a", "b"), "start": {0: 1}}, "names the partition 0; write its number where there is"),
    "no offset": ({"topic": "a", "start": {0: -1}}, "has the offset -1; write 0 or more."),
    "an unknown option": (
        {"topic": "a", "options": {"sasl.pasword": "x"}},
        "option 'sasl.pasword' of Kafka is not",
    ),
    "an option of ours": ({"topic": "a", "options": {"group.id": "x"}}, "is declared by start=CommittedOffsets(group)"),
    "no mechanism": ({"topic": "a", "options": {"security.protocol": "SASL_SSL"}}, "do not go together"),
    "no password": (
        {"topic": "a", "options": {k: v for k, v in SCRAM.items() if k != "sasl.password"}},
        "needs sasl.username and sasl.password; name a variable of the environment",
    ),
    "half a certificate": ({"topic": "a", "options": {"ssl.key.location": "x"}}, "go together; name both."),
    "no isolation": (
        {"topic": "a", "options": {"isolation.level": "none"}},
        "write read_committed or read_uncommitted",
    ),
}


@pytest.mark.parametrize(("given", "text"), REFUSED.values(), ids=REFUSED)
def test_a_declaration_that_cannot_work_is_refused_with_what_to_write(given: dict[str, Any], text: str) -> None:
    with pytest.raises(DeclarationError) as raised:
        Kafka(**{"servers": SERVER, **given})
    assert text in str(raised.value)


@pytest.mark.parametrize("start", ["latest", datetime(2026, 1, 1, tzinfo=UTC), {0: 5}, CommittedOffsets("group")])
def test_a_declaration_is_a_value_and_shows_no_secret(start: Any) -> None:
    source = Kafka(SERVER, "orders", start=start, options={**SCRAM, "ssl.key.password": "key to it"})
    assert pickle.loads(pickle.dumps(source)) == copy.deepcopy(source) == source
    assert hash(copy.deepcopy(source)) == hash(source)
    assert "'sasl.username': 'ann'" in repr(source)
    assert SCRAM["sasl.password"] not in repr(source) and "key to it" not in repr(source)


def test_one_declaration_serves_all_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = tmp_path / "ca.pem"
    authority.write_text("-----BEGIN CERTIFICATE-----")
    monkeypatch.setenv("KAFKA_PASSWORD", SCRAM["sasl.password"])
    declared = {**SCRAM, "sasl.password": "${KAFKA_PASSWORD}", "ssl.ca.location": str(authority)}
    options = client_options(declared)
    asking, reading = for_librdkafka(SERVER, options), for_spark(SERVER, options)
    assert (asking["sasl.password"], asking["ssl.ca.location"]) == (SCRAM["sasl.password"], str(authority))
    assert reading == {
        "kafka.bootstrap.servers": SERVER,
        "kafka.isolation.level": "read_committed",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="ann" password="a \\"b\\" \\\\";',
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.certificates": "-----BEGIN CERTIFICATE-----",
    }
    # Tasks of a cluster have neither the variable nor the file.
    within_tasks = for_tasks(SERVER, options)
    assert within_tasks == {
        **{name: value for name, value in asking.items() if name != "ssl.ca.location"},
        "ssl.ca.pem": "-----BEGIN CERTIFICATE-----",
    }
    monkeypatch.delenv("KAFKA_PASSWORD")
    for made in (for_spark, for_tasks):
        with pytest.raises(SourceError, match="name the variable 'KAFKA_PASSWORD', which is not set"):
            made(SERVER, options)
    authority.unlink()
    with pytest.raises(SourceError, match=r"cannot be read .* name a PEM file"):
        for_spark(SERVER, ClientOptions({"ssl.ca.location": str(authority)}))


ranges = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 6)).map(lambda pair: (pair[0], sum(pair)))).map(joined)
bounds = st.tuples(st.integers(0, 30), st.integers(0, 12)).map(lambda pair: (pair[0], sum(pair)))


def offsets(given: Ranges) -> set[int]:
    return {offset for first, end in given for offset in range(first, end)}


@given(ranges, bounds, st.integers(0, 40))
def test_ranges_are_sets_of_offsets(given: Ranges, part: tuple[int, int], place: int) -> None:
    assert size(given) == len(offsets(given))
    assert offsets(within(given, part)) == offsets(given) & offsets((part,))
    assert offsets(without(part, given)) == offsets((part,)) - offsets(given)
    assert offsets(joined((*given, part))) == offsets(given) | offsets((part,))
    assert beyond(place, given) == next(offset for offset in range(place, 99) if offset not in offsets(given))


@given(ranges, st.sets(st.integers(0, 40)))
def test_the_missing_runs_are_the_expected_offsets_that_are_not_there(expected: Ranges, there: set[int]) -> None:
    runs = missing_runs(np.array(sorted(there), dtype=np.int64), expected)
    assert offsets(tuple(runs)) == offsets(expected) - there
    assert all(first < end for first, end in runs)


def test_an_empty_range_keeps_its_place_and_is_told_as_nothing() -> None:
    assert joined(((5, 5),)) == ((5, 5),) and joined(((5, 5), (5, 8))) == ((5, 8),)
    assert words(((3, 8), (9, 10))) == "3 to 7, 9"
    memory = KafkaMemory("q", "latest", {"a": "id"}, {"id": {"0": ((5, 5),)}}, {"a-0": 2}, {"a-1": ((1, 3),)})
    assert KafkaMemory.from_json(memory.to_json()) == memory
    assert KafkaMemory.from_json({}) == KafkaMemory() and memory.of("id", 0) == ((5, 5),) and memory.of("id", 1) is None


def test_the_time_of_a_record_is_an_instant_up_to_the_year_9999_or_none() -> None:
    last = (datetime.max - datetime(1970, 1, 1)) // timedelta(milliseconds=1)
    times = {-(2**62): None, -1: None, 0: 0, 1: 1, last: last, last + 1: None, 2**63 - 1: None}
    told = instants_of(np.array([*times], np.int64)).cast(pa.timestamp("ms", "UTC")).view(pa.int64())
    assert told.to_pylist() == [*times.values()]


def test_a_topic_is_read_directly_from_the_first_time_whose_microseconds_have_more_than_64_bits() -> None:
    assert (FIRST_BEYOND_SPARK - 1) * 1_000 <= 2**63 - 1 < FIRST_BEYOND_SPARK * 1_000
