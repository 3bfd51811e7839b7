"""Masked values are in no byte of the lake, of the logs and of the errors, whatever the format and what is broken."""

from __future__ import annotations

import hmac
import io
import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.text_format import Parse
from pyspark.sql import SparkSession

from quality.find import log_suite
from streaming import (
    Avro,
    BoundedOutOfOrderness,
    Csv,
    Debezium,
    Drop,
    Files,
    Hash,
    Json,
    Kafka,
    Last,
    Pipeline,
    Protobuf,
    Rule,
    Stream,
    Text,
    Tumbling,
    Windowed,
    agg,
    log,
)
from streaming.base import DeclarationError, RuleViolation, SaltError, SettingsError
from streaming.declare import log_columns
from streaming.formats import Format
from streaming.lake.lake import Lake
from streaming.log.batches import count_reasons
from streaming.log.masking import Masking
from streaming.log.validate import RowValidator
from streaming.operations import judge, preview, repair
from tests.support.instants import NOW, at, ms
from tests.support.runs import run
from tidemark.testing import land

SALT = "a salt that nobody may see"
EMAIL, CARD, NOTE, DEEP = "alice@example.org", "4111222233334444", "she is said to be ill", "deep@example.net"
ODD = "alice(at)example.org"
SECRETS = (EMAIL, CARD, NOTE, DEEP, ODD, "411122223333", SALT)
MASKED = {"email": Hash(salt="${TEST_SALT}"), "card": Last(4), "note": Drop()}
WHEN = at(1).isoformat()
RULES = (
    Rule("is_address", "email like '%@%'"),
    Rule("a_number", "cast(card as bigint) > 5 or card is null", on_violation="warn"),
    Rule("small", "n < 10 or n is null"),
)
COLUMNS = "id string, at timestamp, email string, card string, note string, n int"
SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "string"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "email", "type": "string"},
            {"name": "card", "type": "string"},
            {"name": "note", "type": "string"},
            {"name": "n", "type": "int"},
        ],
    }
)
PROTO = Parse(
    """name: "orders.proto" package: "shop" syntax: "proto3"
    message_type { name: "Order"
      field { name: "id" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
      field { name: "millis" number: 2 type: TYPE_INT64 label: LABEL_OPTIONAL }
      field { name: "email" number: 3 type: TYPE_STRING label: LABEL_OPTIONAL }
      field { name: "card" number: 4 type: TYPE_STRING label: LABEL_OPTIONAL }
      field { name: "note" number: 5 type: TYPE_STRING label: LABEL_OPTIONAL }
      field { name: "n" number: 6 type: TYPE_INT32 label: LABEL_OPTIONAL } }""",
    FileDescriptorProto(),
)


@pytest.fixture(autouse=True)
def salted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_SALT", SALT)
    monkeypatch.setenv("OTHER_SALT", f"{SALT} either")


def hashed(value: str) -> str:
    return hmac.new(SALT.encode(), value.encode(), "sha256").hexdigest()


def stream_of(form: Format, **more: Any) -> Stream:
    given: dict[str, Any] = {"rules": RULES, "masked": MASKED, "event_time": "at", **more}
    return Stream(
        name="orders",
        source=more.pop("source", Files("landing/orders")),
        format=form,
        clock=BoundedOutOfOrderness("5 seconds"),
        **{name: value for name, value in given.items() if name != "source"},
    )


def pipeline_of(stream: Stream) -> Pipeline:
    by = ("email",) if "email" in stream.columns else ()
    return Pipeline(stream, (Windowed("by_minute", stream, Tumbling("1 minute"), {"rows": agg.count()}, by=by),))


def order(**values: Any) -> dict[str, Any]:
    return {"id": "a", "at": WHEN, "email": EMAIL, "card": CARD, "note": NOTE, "n": 1, **values}


ORDERS = (order(), order(email=ODD), order(card=f"{CARD}x"), order(n=11), order(email=None, card=None, note=None))


def json_lines() -> list[bytes]:
    whole = [json.dumps(each).encode() for each in ORDERS]
    odd = (
        order(email={"a": EMAIL}),
        order(card=int(CARD)),
        order(note=[NOTE, NOTE]),
        {**order(), "Email": EMAIL, "more": {"deeper": [{"email": EMAIL, "card": int(CARD)}]}},
        order(at=None),
        order(n="many"),
    )
    broken = (
        f'{{"id": "a", "email": "{EMAIL}", "note": "{NOTE}"',
        f'{{"{EMAIL}": 1, "{EMAIL}": 2}}',
        f'"{EMAIL}"',
        f'[{{"card": "{CARD}"}}]',
        f'{{"id": "a", "note": "{NOTE}\\ud800", "at": "{WHEN}"}}',
    )
    # A line that is no UTF-8.
    return [
        *whole,
        *(json.dumps(each).encode() for each in odd),
        *map(str.encode, broken),
        b'\xff{"note": "' + NOTE.encode(),
    ]


def csv_lines() -> list[bytes]:
    def field(value: Any) -> str:
        return "" if value is None else f'"{value}"'

    whole = [",".join(map(field, each.values())) for each in ORDERS]
    return [
        line.encode()
        for line in (*whole, f'a,{WHEN},"{EMAIL}', f"a,{WHEN},{EMAIL},{CARD},{NOTE},1,{EMAIL}", f"{NOTE},")
    ]


def debezium_lines() -> list[bytes]:
    def change(op: str, row: Any, before: Any = None) -> dict[str, Any]:
        source = {"connector": "postgresql", "lsn": 1, "ts_ms": ms(at(1))}
        return {"before": row if op == "d" else before, "after": None if op == "d" else row, "op": op, "source": source}

    changes = [change("c", each) for each in ORDERS]
    changes += [change("u", order(n=11), order()), change("d", order()), change("x", order()), change("c", EMAIL)]
    wrapped = {"schema": {}, "payload": change("u", order(n=12), order()), "beside": {"email": EMAIL}}
    return [json.dumps(each).encode() for each in (*changes, wrapped, {"payload": EMAIL})] + [
        f'{{"op": "{NOTE}"'.encode()
    ]


def avro_payloads() -> list[bytes]:
    schema = fastavro.parse_schema(json.loads(SCHEMA))
    payloads = []
    for each in ORDERS[:4]:
        written = io.BytesIO()
        fastavro.schemaless_writer(written, schema, {**each, "at": at(1)})
        payloads.append(written.getvalue())
    return [*payloads, payloads[0][:-9], payloads[0] + EMAIL.encode()]


def protobuf_payloads() -> list[bytes]:
    pool = DescriptorPool()
    pool.Add(PROTO)
    message = GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    told = [{**each, "millis": ms(at(1))} for each in ORDERS[:4]]
    payloads = [
        message(**{name: value for name, value in each.items() if name != "at"}).SerializeToString() for each in told
    ]
    return [*payloads, payloads[0] + b"\xff", b"\x0a\x7f" + NOTE.encode()]


def texts() -> list[bytes]:
    return [EMAIL.encode(), ODD.encode(), b"\xff " + EMAIL.encode(), NOTE.encode()]


NESTED = Json("id string, at timestamp, n int, customer struct<name: string, addresses: array<struct<email: string>>>")
NESTED_LINES = [
    json.dumps({"id": "a", "at": WHEN, "n": n, "customer": {"name": "A", "addresses": [{"email": DEEP}, None]}})
    for n in (1, 11)
] + [
    json.dumps({"id": "b", "at": WHEN, "n": 11, "customer": each})
    for each in (DEEP, {"addresses": DEEP}, {"name": 1, "addresses": [{"email": DEEP, "x": {"email": DEEP}}]})
]
"""Also objects where a text stands, or that lie deeper than they should."""

CASES: dict[str, tuple[Stream, list[bytes]]] = {
    "json": (
        stream_of(
            Json(COLUMNS),
            keep_raw=True,
            derived={"domain": "split(email, '@')[1]", "ratio": "100 / n"},
            masked={**MASKED, "domain": Hash(salt="${TEST_SALT}")},
        ),
        json_lines(),
    ),
    "nested": (
        stream_of(NESTED, rules=RULES[2:], masked={"customer.addresses.email": Last(3)}),
        [each.encode() for each in NESTED_LINES],
    ),
    "csv": (stream_of(Csv(COLUMNS)), csv_lines()),
    "text": (
        stream_of(
            Text("email"),
            masked={"email": MASKED["email"]},
            rules=RULES[:1],
            derived={"seen": "_ingested_at"},
            event_time="seen",
        ),
        texts(),
    ),
    "debezium": (
        stream_of(Debezium(Json(COLUMNS)), derived={"seen": "change_at"}, event_time="seen"),
        debezium_lines(),
    ),
    "avro": (stream_of(Avro(SCHEMA), source=Files("landing/orders", payloads="file")), avro_payloads()),
    "protobuf": (
        stream_of(
            Protobuf(FileDescriptorSet(file=[PROTO]).SerializeToString(), "shop.Order"),
            source=Files("landing/orders", payloads="file"),
            derived={"seen": "timestamp_millis(millis)"},
            event_time="seen",
        ),
        protobuf_payloads(),
    ),
}


def shown(lake: Lake) -> Iterator[tuple[str, bytes]]:
    """Every file of the lake but those that were landed, byte for byte, and the values that Parquet packs into them."""
    for path in Path(lake.root).rglob("*"):
        if path.is_file() and "landing" not in path.relative_to(lake.root).parts:
            yield path.name, path.read_bytes()
            if path.suffix == ".parquet":
                rows = pq.read_table(path, partitioning=None).to_pylist()
                yield path.name, repr(rows).encode() + repr([*map(str, rows)]).encode()


def assert_nothing_shown(lake: Lake, *texts: str) -> None:
    contents = [*shown(lake), *((f"text {place}", text.encode()) for place, text in enumerate(texts))]
    assert sum(name.endswith(".parquet") for name, _ in contents) > 2
    found = {(name, secret) for name, content in contents for secret in SECRETS if secret.encode() in content}
    assert not found


def landed(lake: Lake, stream: Stream, lines: list[bytes]) -> None:
    if getattr(stream.source, "payloads", "lines") == "lines":
        land(stream.source.location(lake), lines)
        return
    folder = Path(stream.source.location(lake))
    folder.mkdir(parents=True)
    for place, payload in enumerate(lines):
        (folder / f"{place}.bin").write_bytes(payload)


@pytest.mark.sampled
@pytest.mark.parametrize("mode", ["both", "fast"])
@pytest.mark.parametrize("case", CASES)
def test_no_byte_of_the_lake_and_of_the_logs_shows_a_masked_value(
    spark: SparkSession,
    lake: Lake,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    case: str,
    mode: str,
) -> None:
    monkeypatch.setenv("TIDEMARK_INGEST", mode)
    caplog.set_level(logging.DEBUG, logger="tidemark")
    stream, lines = CASES[case]
    pipeline = pipeline_of(stream)
    landed(lake, stream, lines)
    run(spark, lake, pipeline, end_of_input=True)

    rows = log.read_log(spark, lake, stream).where("_origin is not null").collect()
    assert len(rows) == len(lines)
    assert {row["_day"] is None for row in rows} == {True, False}
    # Each payload that is there says how it was masked, and each that is not says so.
    for row in rows:
        if row["_rejected"] is not None:
            label = row["_rejected"][-1].split(":")[0]
            assert label == ("withheld" if row["_raw"] is None else "masked"), row
    stopping = replace(
        stream, rules=tuple(replace(rule, on_violation="stop") for rule in stream.rules if rule.name != "a_number")
    )
    other = Lake(f"{lake.root}/stopped")
    landed(other, stopping, lines)
    with pytest.raises(RuleViolation) as stopped:
        run(spark, other, pipeline_of(stopping))
    told = preview(spark, lake, pipeline, lambda: NOW)
    captured = capfd.readouterr()
    errors = (str(stopped.value), repr(stopped.value.to_json()), repr(stream), repr(told))
    assert_nothing_shown(lake, caplog.text, captured.out, captured.err, *errors)


def test_what_is_kept_is_the_hash_the_last_characters_and_nothing_and_rules_judge_what_came(
    spark: SparkSession, lake: Lake
) -> None:
    stream = CASES["json"][0]
    run(spark, lake, pipeline_of(stream), [json.dumps(each) for each in ORDERS], end_of_input=True)
    rows = log.read_log(spark, lake, stream).where("_origin is not null").orderBy("_origin.position").collect()
    assert [row["email"] for row in rows] == [hashed(EMAIL), hashed(ODD), hashed(EMAIL), hashed(EMAIL), None]
    assert [row["card"] for row in rows] == ["****4444", "****4444", "****444x", "****4444", None]
    assert [row["domain"] for row in rows][::2] == [hashed("example.org")] * 2 + [None]
    assert {row["note"] for row in rows} == {None}
    labels = [[each.split(":")[0] for each in row["_rejected"] or ()] for row in rows]
    assert labels == [[], ["derived", "is_address", "masked"], [], ["small", "masked"], ["is_address", "masked"]]
    assert [row["_warned"] for row in rows] == [None, None, ["a_number"], None, None]
    assert json.loads(rows[0]["_raw"]) == order(email=hashed(EMAIL), card="****4444", note=None)


def test_a_rejected_row_comes_back_with_the_masked_values_of_then_unless_one_of_them_was_why(
    spark: SparkSession, lake: Lake
) -> None:
    stream = CASES["json"][0]
    lines = [json.dumps(each) for each in (order(id="back", n=11), order(id="stays", n=11, email=ODD), {"id": 7})]
    run(spark, lake, pipeline_of(stream), [*lines, '{"id": "withheld"'])

    corrected = replace(stream, rules=(*RULES[:2], Rule("small", "n < 100")))
    done = repair(spark, lake, pipeline_of(corrected), lambda: NOW)
    assert (done.examined, done.repaired, done.kept_back) == (4, 1, 3)
    rows = log.valid(log.read_log(spark, lake, stream)).collect()
    assert [(row["id"], row["email"], row["card"], row["domain"]) for row in rows] == [
        ("back", hashed(EMAIL), "****4444", hashed("example.org"))
    ]
    assert_nothing_shown(lake)
    # A payload that is not there does not keep reports from being published.
    line = next(each for each in log_suite(stream).expectations if each.name == "valid_or_rejected")
    log.read_log(spark, lake, stream).createOrReplaceTempView("masked_log")
    assert spark.sql(line.arguments["unexpected_rows_query"].format(batch="masked_log")).isEmpty()


MASKS: dict[str, Any] = {"email": MASKED["email"]}


@pytest.mark.parametrize(
    ("then", "today", "repaired"),
    [
        ({}, {"rules": ()}, 1),
        ({}, {"rules": RULES[:1]}, 1),
        # The value of a column that is masked since is in clear in the payload of then.
        ({}, {"rules": (), "masked": {**MASKS, "card": Last(4)}}, 0),
        # What a mask has kept would pass for a value that came, or for what another mask keeps.
        ({}, {"rules": (), "masked": {}}, 0),
        ({}, {"rules": (), "masked": {"email": Last(4)}}, 0),
        ({}, {"rules": (), "masked": {"email": Hash(salt="${OTHER_SALT}")}}, 0),
        # Nobody knows whether the value of then keeps the rule by its new name.
        ({}, {"rules": (Rule("has_sign", "email like '%@%'"),)}, 1),
        # The log has no such column yet.
        ({}, {"rules": (), "derived": {"low": "lower(email)"}, "masked": {**MASKS, "low": Drop()}}, 0),
        # Rows that nobody has masked are judged by what came, and are masked as they come back.
        (
            {"masked": {}},
            {"rules": RULES[:1], "derived": {"low": "lower(email)"}, "masked": {**MASKS, "low": Drop()}},
            1,
        ),
    ],
)
def test_a_row_comes_back_only_under_the_masks_of_then_and_by_rules_that_can_be_asked(
    spark: SparkSession, lake: Lake, then: dict[str, Any], today: dict[str, Any], repaired: int
) -> None:
    before = stream_of(Json(COLUMNS), **{"rules": (RULES[0], RULES[2]), "masked": MASKS, **then})
    run(spark, lake, pipeline_of(before), [json.dumps(each) for each in (order(n=11), order(email=ODD, n=11))])
    now = stream_of(Json(COLUMNS), **{"masked": MASKS, **today})
    told = preview(spark, lake, Pipeline(now), lambda: NOW)
    # The address without its sign was refused for what is masked, and stays so if nobody knows it any more.
    assert (told.examined, told.repaired, told.kept_back) == (2, repaired, 0 if then else 2 - repaired)
    judged = judge(spark, lake, now, days=1, now=NOW)
    assert (judged.refused, judged.accepted) == (2, repaired)


def test_rules_over_masked_columns_and_those_that_warn_are_asked_of_no_row_that_came(
    spark: SparkSession, lake: Lake
) -> None:
    stream = stream_of(Json(COLUMNS), rules=())
    run(spark, lake, pipeline_of(stream), [json.dumps(each) for each in (order(), order(n=11))])
    changed = replace(stream, rules=(*RULES, Rule("few", "n > 100", on_violation="warn")))
    told = judge(spark, lake, changed, days=1, now=NOW)
    assert (told.valid, dict(told.rejected), told.in_all) == (2, {"small": 1}, 1)
    assert str(told).endswith("; is_address cannot be asked of rows that came, as what came is masked")


def test_a_masked_key_of_a_record_is_in_no_reason(spark: SparkSession) -> None:
    stream = stream_of(
        Json(COLUMNS),
        source=Kafka("broker:9092", "orders"),
        masked={"_origin.key": Hash(salt="${TEST_SALT}"), "part": Drop()},
        derived={"part": "cast(cast(_origin.key as string) as int)", "ratio": "_origin.offset / n"},
        rules=(),
    )
    payload = json.dumps(order(n=0)).encode()
    came = spark.createDataFrame(
        [(payload, (EMAIL.encode(), 7))], "_raw binary, _origin struct<key: binary, offset: bigint>"
    )
    (row,) = RowValidator(stream)(stream.format.parse(came), NOW).collect()
    assert any(each.startswith("derived: ratio cannot") for each in row["_rejected"])
    assert all(EMAIL not in each for each in row["_rejected"])
    assert any("_origin, which is masked" in each for each in row["_rejected"])


def test_a_repair_with_another_salt_writes_nothing(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = stream_of(Json(COLUMNS))
    run(spark, lake, pipeline_of(stream), [json.dumps(order(n=11))])
    monkeypatch.setenv("TEST_SALT", "a salt of somebody else")
    before = {path for path, _ in shown(lake)}
    with pytest.raises(SaltError, match="'TEST_SALT' has another salt"):
        repair(spark, lake, pipeline_of(replace(stream, rules=())), lambda: NOW)
    assert {path for path, _ in shown(lake)} == before


def test_a_salt_that_is_missing_too_short_or_another_one_is_told_and_another_variable_is_taken(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = stream_of(Json(COLUMNS))
    pipeline = pipeline_of(stream)
    monkeypatch.delenv("TEST_SALT")
    with pytest.raises(SettingsError, match="'TEST_SALT', which is not set; set it to at least 16 random characters"):
        run(spark, lake, pipeline, [order()])
    monkeypatch.setenv("TEST_SALT", "short")
    with pytest.raises(SettingsError, match="has 5 characters"):
        run(spark, lake, pipeline)
    monkeypatch.setenv("TEST_SALT", SALT)
    monkeypatch.setenv("OTHER_SALT", f"{SALT} either")
    run(spark, lake, pipeline)

    monkeypatch.setenv("TEST_SALT", "a salt of somebody else")
    with pytest.raises(SaltError, match="'TEST_SALT' has another salt") as changed:
        run(spark, lake, pipeline, [order(id="b")])
    assert (changed.value.stream, changed.value.field) == ("orders", "TEST_SALT")
    monkeypatch.setenv("OTHER_SALT", "a salt of somebody else")
    other = replace(stream, masked={**MASKED, "email": Hash(salt="${OTHER_SALT}")})
    run(spark, lake, pipeline_of(other))
    rows = log.valid(log.read_log(spark, lake, stream)).collect()
    assert {row["id"]: row["email"] == hashed(EMAIL) for row in rows} == {"a": True, "b": False}


def test_a_key_that_is_hashed_is_the_key_still(spark: SparkSession, lake: Lake) -> None:
    stream = stream_of(Json(COLUMNS), key=("email",), sequence="n")
    rows = [order(n=1), order(n=2), order(n=1, email=DEEP), order(n=3, email=None)]
    run(spark, lake, pipeline_of(stream), [json.dumps(each) for each in rows])
    read = log.valid(log.read_log(spark, lake, stream)).select("email", "n", "_origin.change").collect()
    assert sorted((row["email"], row["n"], row["change"]) for row in read) == sorted(
        [(hashed(EMAIL), 2, 1), (hashed(DEEP), 1, 1)]
    )
    assert_nothing_shown(lake)


@pytest.mark.parametrize(
    ("masked", "more", "says"),
    [
        ({"mail": Drop()}, {}, "there is no column 'mail'"),
        ({"n": Last(2)}, {}, "of type int, and only a text can be masked so"),
        ({"at": Drop()}, {}, "the event time is made of it"),
        ({"email": Last(3)}, {"key": ("email",), "sequence": "n"}, "use Hash"),
        ({"n": Drop()}, {"key": ("id",), "sequence": "n"}, "sequence is made of it"),
        ({"email": Drop()}, {"derived": {"low": "lower(email)"}}, "is derived of email, which is masked"),
        ({"_origin.key": Drop()}, {}, "has no such field"),
        ({"email.x": Drop()}, {}, "has no such field"),
        ({"email": Drop()}, {"derived": {"all_of_it": "to_json(struct(*))"}}, r"it reads all columns by '\*'"),
    ],
)
def test_a_mask_that_would_show_or_lose_what_is_needed_is_refused(
    masked: dict[str, Any], more: dict[str, Any], says: str
) -> None:
    with pytest.raises(DeclarationError, match=says):
        stream_of(Json(COLUMNS), **{"masked": masked, **more})


def test_the_key_and_the_headers_of_a_record_are_masked_where_they_are_named() -> None:
    stream = replace(
        stream_of(Json(COLUMNS)),
        source=Kafka("broker:9092", "orders"),
        masked={"_origin.key": MASKED["email"], "_origin.headers": Drop(), "note": Drop()},
    )
    masking = Masking.of(stream)
    assert masking is not None and SALT not in repr(masking)
    origin = [{"offset": 1, "key": EMAIL.encode(), "headers": [{"key": "h", "value": CARD.encode()}]}, None]
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    kinds = pa.struct([("offset", pa.int64()), ("key", pa.binary()), ("headers", headers)])
    rows = pa.RecordBatch.from_pydict(
        {
            "note": [NOTE, None],
            "_raw": pa.array([json.dumps(order()).encode(), None], pa.binary()),
            "_rejected": pa.array([["small: no"], None], pa.list_(pa.string())),
            "_origin": pa.array(origin, kinds),
        }
    )
    first, second = masking.rows(rows).to_pylist()
    assert first["_origin"] == {"offset": 1, "key": hashed(EMAIL).encode(), "headers": None}
    assert (first["note"], second["_origin"], second["_rejected"]) == (None, None, None)
    # The column is not masked in this stream, so its payload is as it came but for the note.
    assert json.loads(first["_raw"]) == order(note=None)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        *(
            ({"derived": {"part": expression}}, r"is derived of _origin\.key, which is masked")
            for expression in (
                "_origin.key",
                "to_json(_origin)",
                "_origin['key']",
                "`_origin`.`key`",
                "struct(_origin.*)",
            )
        ),
        ({"key": ("id",), "sequence": "_origin.key"}, "sequence is made of it"),
        ({"key": ("id",), "sequence": "n", "deletes": "_origin.key is null"}, "deletes is made of it"),
    ],
)
def test_a_masked_key_of_a_record_is_in_no_column_and_in_no_order(more: dict[str, Any], says: str) -> None:
    masked = {"_origin.key": Hash(salt="${TEST_SALT}")}
    with pytest.raises(DeclarationError, match=says):
        stream_of(Json(COLUMNS), source=Kafka("broker:9092", "orders"), **{"masked": masked, **more})
    allowed = {"offset": "_origin.offset", "headers": "_origin.headers", "text": "'_origin.key'"}
    stream_of(Json(COLUMNS), source=Kafka("broker:9092", "orders"), masked=masked, derived=allowed)


def test_a_mask_of_the_key_of_a_record_alone_leaves_its_payload_as_it_is() -> None:
    stream = stream_of(Avro(SCHEMA), source=Kafka("broker:9092", "orders"), masked={"_origin.key": Drop()}, rules=())
    masking = Masking.of(stream)
    assert masking is not None
    rows = pa.RecordBatch.from_pydict(
        {
            "_raw": pa.array([b"some bytes", None, None], pa.binary()),
            "_rejected": pa.array([["small: no"], ["small: no"], None], pa.list_(pa.string())),
            "_origin": pa.array([{"key": b"a"}] * 3, pa.struct([("key", pa.binary())])),
        }
    )
    told = [(row["_raw"], row["_rejected"], row["_origin"]["key"]) for row in masking.rows(rows).to_pylist()]
    # Also of a row without a payload it is known how it was masked, so that no repair masks it twice.
    assert told == [
        (b"some bytes", ["small: no", "masked: _origin.key by Drop"], None),
        (None, ["small: no", "masked: _origin.key by Drop"], None),
        (None, None, None),
    ]


def stars(value: bytes) -> bytes:
    return b"***"


@pytest.mark.parametrize(
    ("form", "payload", "kept"),
    [
        (
            Json("id string, email string", fields={"email": "contact.email"}),
            {"contact.email": EMAIL, "contact": {"email": DEEP}, "beside": [{"Contact.Email": EMAIL}]},
            {"contact.email": "***", "contact": {"email": "***"}, "beside": [{"Contact.Email": "***"}]},
        ),
        (
            Debezium(Json("id string, email string")),
            {"payload": None, "email": EMAIL, "schema": {"email": EMAIL}},
            {"payload": None, "email": "***", "schema": {"email": "***"}},
        ),
    ],
)
def test_a_value_is_masked_under_a_name_with_a_dot_and_beside_an_envelope_that_is_null(
    form: Format, payload: dict[str, Any], kept: dict[str, Any]
) -> None:
    masked = form.masked_payload(json.dumps(payload).encode(), {"email": stars})
    assert masked is not None and json.loads(masked) == kept


def test_a_record_of_csv_whose_names_lack_a_masked_column_is_withheld() -> None:
    form = Csv("id string, email string", header=True)
    # A file without its header: its first record is sent along as that of the names.
    assert form.masked_payload(f"1,{EMAIL}\n2,bob@example.org\n".encode(), {"email": stars}) is None
    assert form.masked_payload(f"id,{EMAIL}\n2,bob@example.org\n".encode(), {"email": stars}) is None
    # A masked column that is derived is in no payload.
    kept = form.masked_payload(f"id,EMAIL,x\n2,{EMAIL},y\n".encode(), {"email": stars, "domain": stars})
    assert kept == b'"id","EMAIL","x"\n"2","***","y"'


def test_what_masks_have_done_is_counted_as_no_reason_and_no_rule_is_called_so() -> None:
    rejected = pa.array([["small: no", "masked: email"], None, ["json: no", "withheld: of 3 bytes"]])
    assert count_reasons(rejected) == {"small": 1, "json": 1}
    with pytest.raises(DeclarationError, match="rule 'withheld' of stream 'orders' has the name of a reason"):
        stream_of(Json(COLUMNS), masked={}, rules=(Rule("withheld", "n > 0"),))


def test_the_log_says_of_its_payloads_that_they_are_masked() -> None:
    meanings = {
        masked: next(spec.meaning for spec in log_columns(stream_of(Json(COLUMNS), masked=each)) if spec.name == "_raw")
        for masked, each in ((True, MASKED), (False, {}))
    }
    assert ("with masked values" in meanings[True], "byte for byte" in meanings[False]) == (True, True)


def test_a_salt_that_is_written_out_is_refused_and_not_repeated() -> None:
    with pytest.raises(DeclarationError, match=r"name a variable of the environment") as refused:
        Hash(salt=SALT)
    assert SALT not in str(refused.value)
    with pytest.raises(DeclarationError, match="keep_raw"):
        stream_of(Avro(SCHEMA), keep_raw=True)
