"""Rows into topics of a real broker: once for readers of committed rows, and what is refused put aside."""

from __future__ import annotations

import copy
import itertools
import pickle
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from streaming import Lake
from streaming.base.errors import DeclarationError, FencedError, ProgressError, SinkError
from streaming.formats import Avro
from streaming.formats.avro_decoder import AvroDecoder
from streaming.formats.avro_types import parsed
from streaming.sinks.kafka import KafkaTopic
from streaming.sinks.kafka.sink import KafkaSink
from streaming.sinks.sink import CHANGE, REASON, REVISION, TIME, Delivered, NumberedBatch, RefusedRow
from tests.streaming.sinks.contract import LAWS, Arrivals, batch, deliver
from tests.support.instants import at
from tests.support.kafka import PASSWORD, USER, Broker
from tests.support.received import Received, received
from tests.support.registry import registry

_NUMBERS = itertools.count()
NOWHERE = Lake("/nowhere")


@pytest.fixture
def topic() -> str:
    """A name that no other test has."""
    return f"delivered-{next(_NUMBERS)}"


def to(kafka: Broker, topic: str, **given: Any) -> KafkaTopic:
    """A target whose progress is its own."""
    return KafkaTopic(kafka.servers, topic, **{"progress": f"progress-of-{topic}", **given})


def sink_of(target: KafkaTopic, key: Sequence[str] = (), identity: str = "") -> KafkaSink:
    sink = target.connect(NOWHERE, Delivered("shop/all", identity, tuple(key) or target.key))
    assert isinstance(sink, KafkaSink)
    return sink


def rows_of(number: int, *rows: dict[str, Any]) -> NumberedBatch:
    """A batch of the rows, each with a revision of its own unless it has one."""
    numbered = [{REVISION: place, **row} for place, row in enumerate(rows)]
    return NumberedBatch("shop/all", 0, number, pa.Table.from_pylist(numbered))


def send(target: KafkaTopic, *rows: dict[str, Any], number: int = 0) -> list[RefusedRow]:
    return deliver(sink_of(target), rows_of(number, *rows))


def names(records: list[Received]) -> list[str]:
    return [record.json["name"] for record in records]


def names_only(*names: str) -> list[dict[str, Any]]:
    return [{"name": name} for name in names]


@pytest.mark.sampled
@pytest.mark.parametrize("transactional", [True, False])
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_a_topic_keeps_the_contract_of_targets(
    law: Callable[[Arrivals], None], transactional: bool, lake: Lake, kafka: Broker, topic: str
) -> None:
    kafka.create(topic, 5)
    target = to(kafka, topic, partition="number", headers={"number": "number"}, transactional=transactional)

    def numbers() -> list[int]:
        return [int(record.headers["number"] or b"") for record in received(kafka, topic)]

    law(Arrivals(target, lake, numbers, -1))


def test_a_record_has_key_value_headers_time_and_the_partition_of_javas_hash(kafka: Broker, topic: str) -> None:
    kafka.create(topic, 7)
    # Murmur2 as in the tests of Kafka itself: without its sign it says the partition.
    hashes = {"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536}
    rows = [{"id": key, "value": 1, "trace": f"t {key}", TIME: at(1.5)} for key in hashes]
    assert send(to(kafka, topic, key=("id",), headers={"trace-id": "trace"}), *rows) == []
    records = {(record.key or b"").decode(): record for record in received(kafka, topic)}
    assert {key: record.partition for key, record in records.items()} == {
        key: (number & 0x7FFFFFFF) % 7 for key, number in hashes.items()
    }
    assert records["21"].json == {"id": "21", "value": 1}
    assert records["21"].headers == {"trace-id": b"t 21"}
    assert {record.at for record in records.values()} == {at(1.5)}


def test_topic_and_partition_by_row_and_a_key_of_two_columns(kafka: Broker, topic: str) -> None:
    kafka.create(topic)
    kafka.create(f"{topic}-b", 3)
    target = to(kafka, topic, key=("id", "day"), partition="part", topic_column="kind")
    day = datetime(2026, 1, 2).date()
    rows: list[dict[str, Any]] = [
        {"id": 1, "day": day, "part": 0, "kind": None, "price": Decimal("1.50")},
        {"id": 2, "day": None, "part": 2, "kind": f"{topic}-b", "price": None},
    ]
    assert send(target, *rows) == []
    (first,), (second,) = received(kafka, topic), received(kafka, f"{topic}-b")
    assert (first.key, first.json) == (b'{"id":1,"day":"2026-01-02"}', {"id": 1, "day": "2026-01-02", "price": "1.50"})
    assert (second.key, second.partition, second.json) == (
        *(b'{"id":2,"day":null}', 2),
        {"id": 2, "day": None, "price": None},
    )


def test_changes_are_values_with_their_revision_and_a_delete_is_a_tombstone(kafka: Broker, topic: str) -> None:
    kafka.create(topic, cleanup_policy="compact")
    changes: list[dict[str, Any]] = [
        {"id": "a", "total": 1, REVISION: 3, CHANGE: "upsert", REASON: "first"},
        {"id": "b", "total": None, REVISION: 4, CHANGE: "delete", REASON: "correction"},
    ]
    sink = sink_of(to(kafka, topic), key=("id",))
    assert deliver(sink, rows_of(0, *changes)) == []
    first, second = received(kafka, topic)
    assert (first.key, first.json) == (b"a", {"id": "a", "total": 1})
    assert first.headers == {CHANGE: b"upsert", REVISION: b"3", REASON: b"first"}
    assert (second.key, second.value, second.headers[CHANGE], second.headers[REVISION]) == (b"b", None, b"delete", b"4")


def test_rows_that_cannot_be_records_are_put_aside_and_the_others_arrive(kafka: Broker, topic: str) -> None:
    """The one of 10 MB, one without and one with an invalid topic, one of a topic and one of a partition not there."""
    kafka.create(topic)
    target = KafkaTopic(kafka.servers, topic_column="kind", partition="part", progress=f"progress-of-{topic}")
    given: list[tuple[str, str | None, int | None]] = []
    given += [("a", topic, 0), ("x" * 10_000_000, topic, 0), ("b", None, 0), ("c", "no topic", 0), ("d", "gone", 0)]
    given += [("e", topic, 1), ("f", topic, -1), ("g", topic, None)]
    refused = send(target, *({"name": name, "kind": kind, "part": part} for name, kind, part in given))
    assert [row.position for row in refused] == [1, 2, 3, 4, 5, 6]
    for row, reason in zip(
        refused,
        (
            "Message size too large",
            "kind is null, and no topic is declared",
            "'no topic' cannot name a topic",
            "there is no topic 'gone'",
            f"topic '{topic}' has no partition 1, but 0 alone",
            "-1 is no number of a partition",
        ),
        strict=True,
    ):
        assert reason in row.error
    assert names(received(kafka, topic)) == ["a", "g"]


def test_a_larger_message_arrives_where_all_of_them_allow_it(kafka: Broker, topic: str) -> None:
    kafka.create(topic, max_message_bytes="20000000")
    target = to(kafka, topic, options={"message.max.bytes": "20000000", "compression.type": "zstd"})
    assert send(target, {"name": "x" * 10_000_000}) == []
    assert [len(name) for name in names(received(kafka, topic))] == [10_000_000]


@pytest.mark.parametrize("transactional", [True, False])
def test_of_rows_that_brokers_refuse_together_the_innocent_arrive_in_order(
    transactional: bool, kafka: Broker, topic: str
) -> None:
    """A compacted topic takes no row without a key, and this one none of more than a kilobyte."""
    kafka.create(topic, cleanup_policy="compact", max_message_bytes="1000")
    target = to(kafka, topic, key=("id",), transactional=transactional)
    keys = ["a", None, "b", "c", None, "d"]
    rows = [{"id": key, "name": f"{place}"} for place, key in enumerate(keys)]
    rows[3]["name"] = "x" * 2000
    refused = send(target, *rows)
    assert [row.position for row in refused] == [1, 3, 4]
    arrived = names(received(kafka, topic))
    # Without transactions a row may come twice.
    assert (arrived if transactional else sorted({*arrived})) == ["0", "2", "5"]


def test_a_declared_topic_that_is_not_there_is_waited_for(kafka: Broker, topic: str) -> None:
    target = to(kafka, topic)
    with pytest.raises(SinkError, match=rf"there is no topic '{topic}' at .*; create it"):
        send(target, *names_only("a"))
    kafka.create(topic)
    assert send(target, *names_only("a")) == []
    assert names(received(kafka, topic)) == ["a"]


@pytest.mark.parametrize("transactional", [True, False])
def test_no_broker_means_away(transactional: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streaming.sinks.kafka.sink._ANSWERS_WITHIN", 0.5)
    target = KafkaTopic("127.0.0.1:1", "orders", transactional=transactional)
    with pytest.raises(SinkError, match=r"^127\.0\.0\.1:1: orders is away: .*Start the brokers"):
        send(target, *names_only("a"))


def test_a_process_that_was_stopped_in_a_transaction_holds_nobody_up_and_cannot_deliver_any_more(
    kafka: Broker, topic: str
) -> None:
    """The zombie has sent its rows when it is stopped; another takes over, and then it wakes."""
    kafka.create(topic)
    zombie, other = (sink_of(to(kafka, topic)) for _ in range(2))
    zombie.deliver(rows_of(0, *names_only("0")), lambda refused: None)

    def stopped(refused: object) -> None:
        other.deliver(rows_of(1, *names_only("1")), lambda refused: None)

    with pytest.raises(FencedError, match="another process delivers there"):
        zombie.deliver(rows_of(1, *names_only("1")), stopped)
    assert names(received(kafka, topic)) == ["0", "1"]
    assert sorted(names(received(kafka, topic, committed=False))) == ["0", "1", "1"]
    other.close()


def test_a_process_that_slept_between_two_batches_cannot_deliver_any_more(kafka: Broker, topic: str) -> None:
    kafka.create(topic)
    zombie, other = (sink_of(to(kafka, topic)) for _ in range(2))
    assert zombie.delivered_through(0) == -1
    deliver(other, rows_of(0, *names_only("0")))
    with pytest.raises(FencedError, match="another process delivers there"):
        zombie.deliver(rows_of(0, *names_only("0")), lambda refused: None)
    assert names(received(kafka, topic)) == ["0"]


@pytest.mark.long
def test_x9_a_broker_that_is_killed_in_mid_batch_loses_and_doubles_nothing(kafka: Broker, topic: str) -> None:
    kafka.create(topic, 2)
    sink = sink_of(to(kafka, topic, key=("name",)))
    sink.deliver(rows_of(0, *names_only("0", "1")), lambda refused: None)
    given = names_only(*map(str, range(2, 200)))

    def dies(refused: object) -> None:
        kafka.kill()
        kafka.start()

    # It may be back before anybody gave up.
    for put_aside in (dies, lambda refused: None):
        try:
            sink.deliver(rows_of(1, *given), put_aside)
            break
        except SinkError:
            sink.close()
    assert sink.delivered_through(0) == 1
    sink.close()
    assert sorted(map(int, names(received(kafka, topic)))) == list(range(200))


def test_without_transactions_a_record_has_an_id_that_is_the_same_each_time(kafka: Broker, topic: str) -> None:
    kafka.create(topic)
    target = to(kafka, topic, transactional=False)
    assert (target.guarantee, to(kafka, topic).guarantee) == ("at least once", "exactly once")
    for _ in range(2):
        send(target, *names_only("a", "b"), number=7)
    ids = [record.headers["_id"] for record in received(kafka, topic)]
    assert ids == [b"shop/all/0/7/0", b"shop/all/0/7/1"] * 2


def test_progress_of_another_lake_and_a_topic_that_forgets_are_refused(kafka: Broker, topic: str) -> None:
    kafka.create(topic)
    target = to(kafka, topic)
    deliver(sink_of(target, identity="one"), rows_of(0, *names_only("a")))
    with pytest.raises(ProgressError, match="has progress of another delivery that is called 'shop/all' too"):
        sink_of(target, identity="two").delivered_through(0)
    kafka.create(f"forgets-{topic}")
    forgets = KafkaTopic(kafka.servers, topic, progress=f"forgets-{topic}")
    with pytest.raises(SinkError, match=r"has cleanup\.policy=delete, .*set it to compact"):
        sink_of(forgets).delivered_through(0)


SCHEMA = """{"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "string"},
    {"name": "amount", "type": ["null", "int"]},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}}]}"""


def test_records_of_avro_are_what_our_own_reader_reads(kafka: Broker, topic: str) -> None:
    kafka.create(topic)
    columns = [("id", pa.string()), ("amount", pa.int32()), ("at", pa.timestamp("us", "UTC"))]
    reasons = pa.struct([(name, pa.string()) for name, _ in columns])
    added = [("_unreadable", pa.string()), ("_wrong", reasons), ("_unknown", pa.list_(pa.string()))]
    instant = datetime(2026, 1, 1, tzinfo=UTC)
    rows = [{"id": "a", "amount": 1, "at": instant}, {"id": "b", "amount": 2**40, "at": instant}]
    with registry({7: SCHEMA}) as url:
        refused = send(to(kafka, topic, format=Avro(SCHEMA, registry=url)), *rows)
        raw = pa.record_batch({"_raw": [record.value for record in received(kafka, topic)]})
        decoder = AvroDecoder(("id", "amount", "at"), pa.schema([*columns, *added]), url, parsed(SCHEMA))
        (read,) = decoder.batches(iter([raw]))
    assert [(row.position, row.error[:38]) for row in refused] == [(1, "avro: the row is no record of the sche")]
    assert read.select(["id", "amount", "at", "_unreadable"]).to_pylist() == [{**rows[0], "_unreadable": None}]
    assert received(kafka, topic)[0].value is not None


def test_a_registry_that_is_away_or_refuses_the_schema_is_waited_for(kafka: Broker, topic: str) -> None:
    kafka.create(topic)
    row = {"id": "a", "amount": 1, "at": datetime(2026, 1, 1, tzinfo=UTC)}
    with registry({}) as url, pytest.raises(SinkError, match=rf"refuses the schema of '{topic}-value'"):
        send(to(kafka, topic, format=Avro(SCHEMA, registry=url)), row)
    with pytest.raises(SinkError, match="does not answer"):
        send(to(kafka, topic, format=Avro(SCHEMA, registry=url)), row)
    assert send(to(kafka, topic, format=Avro(SCHEMA)), row) == []
    assert [(record.value or b"")[:2] for record in received(kafka, topic)] == [b"\x02a"]


SECRET = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": USER,
    "sasl.password": "${TOPIC_PASSWORD}",
}


def test_who_may_not_write_waits_for_the_right_and_no_secret_is_in_any_text(
    kafka: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.create(topic)
    target = KafkaTopic(kafka.secured, topic, options=SECRET)
    with pytest.raises(SinkError, match="the options of Kafka name the variable 'TOPIC_PASSWORD', which is not set"):
        send(target, *names_only("a"))
    monkeypatch.setenv("TOPIC_PASSWORD", PASSWORD)
    with pytest.raises(SinkError, match="Give the user the rights to write") as error:
        send(target, *names_only("a"))
    plain = KafkaTopic(kafka.secured, topic, options={**SECRET, "sasl.password": PASSWORD})
    assert PASSWORD not in f"{error.value}{plain}{target.address}"


def test_a_transaction_timeout_that_brokers_do_not_allow_is_told(kafka: Broker, topic: str) -> None:
    kafka.create(topic)
    with pytest.raises(SinkError, match=r"Lower transaction\.timeout\.ms"):
        send(to(kafka, topic, options={"transaction.timeout.ms": "3600000"}), *names_only("a"))
    with pytest.raises(SinkError, match="Correct the options of KafkaTopic"):
        send(to(kafka, topic, options={"linger.ms": "soon"}), *names_only("a"))


def test_a_declaration_is_a_value() -> None:
    target = KafkaTopic("broker:9092", "orders", headers={"a": "b"}, transactional=False, options=SECRET)
    for same in (copy.deepcopy(target), pickle.loads(pickle.dumps(target))):
        assert same == target and hash(same) == hash(target) and same.guarantee == "at least once"
    assert "***" in repr(target)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"topic": None}, "KafkaTopic has no topic; give it topic='orders', or topic_column="),
        ({"topic": "a b"}, "'a b' cannot name a topic"),
        ({"servers": "broker"}, "servers='broker' are no hosts and ports"),
        ({"key": "id"}, "a tuple of columns, such as key=\\('id',\\)"),
        ({"headers": {"a": 1}}, "'a' in headers of KafkaTopic is 1"),
        ({"options": {"transactional.id": "x"}}, "is declared by nothing: it follows from the delivery"),
        ({"options": {"isolation.level": "x"}}, "option 'isolation.level' of Kafka is not known"),
        ({"format": "avro"}, "Avro\\(schema, registry=...\\), or nothing for JSON"),
    ],
)
def test_what_cannot_be_delivered_to_is_refused(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(DeclarationError, match=reason):
        KafkaTopic(**{"servers": "broker:9092", "topic": "orders", **given})


def test_an_empty_batch_of_the_contract_names_no_topic(kafka: Broker, topic: str) -> None:
    """Only what rows ask for is looked up: a topic that is not there yet holds up no batch without rows."""
    assert deliver(sink_of(to(kafka, topic)), batch(0)) == []
