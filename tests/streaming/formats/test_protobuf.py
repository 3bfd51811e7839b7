"""Protobuf, plain and with a schema registry that really answers."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import struct_pb2, timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.text_format import Parse
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from streaming.base.errors import DeclarationError
from streaming.formats.protobuf import Protobuf
from streaming.formats.protobuf_decoder import ProtobufDecoder
from streaming.formats.protobuf_values import described
from tests.streaming.formats.contract import Samples, check_format
from tests.support.registry import registry

IMPORTED = [module.DESCRIPTOR for module in (timestamp_pb2, wrappers_pb2, struct_pb2)]
ANY_OF = {
    "DOUBLE": ("double", pa.float64(), st.floats(allow_nan=False)),
    "FLOAT": ("float", pa.float32(), st.floats(allow_nan=False, width=32)),
    "INT32": ("int", pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "SINT32": ("int", pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "SFIXED32": ("int", pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "UINT32": ("bigint", pa.int64(), st.integers(0, 2**32 - 1)),
    "FIXED32": ("bigint", pa.int64(), st.integers(0, 2**32 - 1)),
    "INT64": ("bigint", pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "SINT64": ("bigint", pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "SFIXED64": ("bigint", pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "UINT64": ("decimal(20,0)", pa.decimal128(20), st.integers(0, 2**64 - 1)),
    "FIXED64": ("decimal(20,0)", pa.decimal128(20), st.integers(0, 2**64 - 1)),
    "BOOL": ("boolean", pa.bool_(), st.booleans()),
    "STRING": ("string", pa.string(), st.text(st.characters(exclude_categories=["Cs"]))),
    "BYTES": ("binary", pa.binary(), st.binary()),
}
"""Each scalar type: what it is in Spark and in Arrow, and values of it."""
ENTRY = """
    nested_type { name: "CountsEntry" options { map_entry: true }
        field { name: "key" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
        field { name: "value" number: 2 type: TYPE_INT32 label: LABEL_OPTIONAL } }
"""


def fields(*declared: tuple[str, int, str], first: int = 1) -> str:
    """Fields in the text format: name, number, and the rest: a type, `repeated`, and further settings."""
    parts = []
    for name, number, rest in declared:
        type_, _, more = rest.partition(" ")
        label = "REPEATED" if "repeated" in more else "REQUIRED" if "required" in more else "OPTIONAL"
        kind = f"type: TYPE_{type_}" if type_.isupper() or type_[-1].isdigit() else f'type_name: ".{type_}"'
        presence = "proto3_optional: true oneof_index: 0" if "presence" in more else ""
        parts.append(f'field {{ name: "{name}" number: {number} {kind} label: LABEL_{label} {presence} }}')
    return "\n".join(parts)


def file(content: str, syntax: str = "proto3", package: str = "shop") -> FileDescriptorProto:
    """A file of such messages, which may import what is well known."""
    imports = " ".join(f'dependency: "{each.name}"' for each in IMPORTED)
    text = f'name: "shop.proto" package: "{package}" syntax: "{syntax}" {imports} {content}'
    return Parse(text, FileDescriptorProto())


def set_of(*files: FileDescriptorProto) -> bytes:
    """The file first: that what it imports comes later is no matter."""
    imported = [FileDescriptorProto.FromString(each.serialized_pb) for each in IMPORTED]
    return FileDescriptorSet(file=[*files, *imported]).SerializeToString()


def written(descriptor_set: bytes, message: str, **values: Any) -> bytes:
    """A message as Google's library writes it, required fields or not."""
    made: Message = GetMessageClass(described(descriptor_set, message))(**values)
    return made.SerializePartialToString()


LINE = f'message_type {{ name: "Line" {fields(("sku", 1, "STRING"), ("amount", 2, "DOUBLE"))} }}'
ORDER = f"""
    enum_type {{ name: "State" value {{ name: "OPEN" number: 0 }} value {{ name: "PAID" number: 3 }} }}
    {LINE}
    message_type {{ name: "Order" oneof_decl {{ name: "_note" }} {ENTRY}
        {
    fields(
        ("id", 1, "STRING"),
        ("number", 2, "INT64"),
        ("note", 3, "STRING presence"),
        ("state", 4, "shop.State"),
        ("lines", 5, "shop.Line repeated"),
        ("counts", 6, "shop.Order.CountsEntry repeated"),
        ("at", 7, "google.protobuf.Timestamp"),
        ("rate", 8, "google.protobuf.DoubleValue"),
        ("big", 9, "UINT64"),
        ("any", 10, "google.protobuf.Struct"),
        ("first", 11, "shop.Line"),
        ("blob", 12, "BYTES"),
        ("tags", 13, "STRING repeated"),
    )
} }}
"""
SHOP = set_of(file(ORDER))
NOTHING = {
    "id": "", "number": 0, "note": None, "state": "OPEN", "lines": [], "counts": {}, "at": None, "rate": None,
    "big": Decimal(0), "any": None, "first": None, "tags": [],
}  # fmt: skip


def order(**values: Any) -> bytes:
    return written(SHOP, "shop.Order", **values)


def raw_field(number: int, wire_type: int, content: bytes) -> bytes:
    return bytes([number << 3 | wire_type]) + content


def test_plain_protobuf_keeps_the_contract(spark: SparkSession) -> None:
    instant = {"seconds": 1_767_225_600, "nanos": 1_999}
    whole = order(
        id="ü", number=-1, note="", state=3, lines=[{"sku": "a", "amount": 1.5}], counts={"x": 1}, at=instant,
        rate={"value": 0.0}, big=2**64 - 1, any={"a": [1, "ü"]}, tags=["b", "a"],
    )  # fmt: skip
    good: dict[bytes, Mapping[str, Any]] = {
        b"": NOTHING,
        whole: {
            "id": "ü", "number": -1, "note": "", "state": "PAID", "counts": {"x": 1}, "rate": 0.0,
            "big": Decimal(2**64 - 1), "any": '{"a": [1.0, "ü"]}', "tags": ["b", "a"], "first": None,
        },
        order(state=7): NOTHING | {"state": "7"},
    }  # fmt: skip
    wrong = {
        raw_field(2, 2, b"\1x"): frozenset({"number"}),
        raw_field(7, 2, b"\2\x10\x7f") + raw_field(1, 0, b"\1"): frozenset({"id"}),
        order(at={"seconds": 10**15}): frozenset({"at"}),
        raw_field(5, 2, b"\2\x08\1"): frozenset({"lines"}),
        order(any={"a": float("nan")}): frozenset({"any"}),
        raw_field(1, 2, b"\1\xff"): frozenset({"id"}),
    }
    unknown = {order(id="a") + raw_field(14, 0, b"\1") * 2: frozenset({"#14"})}
    unreadable = (whole[:-1], b"\x0a\xff", b"not a message")
    check_format(spark, Protobuf(SHOP, "shop.Order"), Samples(good, wrong, unknown, unreadable))

    raw = spark.createDataFrame([(whole,)], "_raw binary")
    (row,) = Protobuf(SHOP, "shop.Order").parse(raw).selectExpr("unix_micros(at)", "lines[0].amount").collect()
    assert tuple(row) == (1_767_225_600_000_001, 1.5)


def test_fields_that_proto2_requires_are_missed_also_within_messages(spark: SparkSession) -> None:
    inner = f'message_type {{ name: "Inner" {fields(("x", 1, "INT32 required"))} }}'
    outer = fields(("id", 1, "STRING required"), ("v", 2, "INT32"), ("inner", 3, "shop.Inner"))
    extension = 'extension { name: "more" number: 100 type: TYPE_INT32 label: LABEL_OPTIONAL extendee: ".shop.Old" }'
    message = f'message_type {{ name: "Old" {outer} extension_range {{ start: 100 end: 200 }} }}'
    described_by = set_of(file(f"{inner} {message} {extension}", "proto2"))

    def old(**values: Any) -> bytes:
        return written(described_by, "shop.Old", **values)

    good = {old(id="a"): {"id": "a", "v": None, "inner": None}}
    wrong = {old(v=1): frozenset({"id"}), old(id="a", inner={}): frozenset({"inner"})}
    unknown = {old(id="a") + b"\xa0\x06\1": frozenset({"[shop.more]"})}
    check_format(spark, Protobuf(described_by, "shop.Old"), Samples(good, wrong, unknown, ()))


def test_a_number_without_a_name_in_an_enum_of_proto2_reads_as_not_sent_and_keeps_its_payload(
    spark: SparkSession,
) -> None:
    state = 'enum_type { name: "State" value { name: "OPEN" number: 0 } value { name: "PAID" number: 3 } }'
    entry = fields(("key", 1, "STRING"), ("value", 2, "shop.State"))
    states = f'nested_type {{ name: "ByDayEntry" options {{ map_entry: true }} {entry} }}'
    inner = f'message_type {{ name: "Part" {fields(("state", 1, "shop.State"))} }}'
    declared = fields(
        ("state", 1, "shop.State"),
        ("before", 2, "shop.State repeated"),
        ("by_day", 3, "shop.Old.ByDayEntry repeated"),
        ("parts", 4, "shop.Part repeated"),
        ("must", 5, "shop.State required"),
    )
    described_by = set_of(file(f'{state} {inner} message_type {{ name: "Old" {states} {declared} }}', "proto2"))
    must, seven, text = raw_field(5, 0, b"\3"), b"\7", b"\1x"
    of_a_day = {
        number: raw_field(3, 2, b"\5" + raw_field(1, 2, text) + raw_field(2, 0, number)) for number in (b"\3", seven)
    }
    good = {
        must + raw_field(1, 0, b"\0") + of_a_day[b"\3"]: {"state": "OPEN", "before": [], "by_day": {"x": "PAID"}},
    }
    note = "(a number without a name)"
    unknown = {
        must + raw_field(1, 0, seven): frozenset({f"state {note}"}),
        must + raw_field(2, 0, b"\3") + raw_field(2, 0, seven): frozenset({f"before {note}"}),
        must + raw_field(2, 2, b"\2\3\7"): frozenset({f"before {note}"}),
        must + of_a_day[seven]: frozenset({f"by_day {note}"}),
        must + raw_field(4, 2, b"\2" + raw_field(1, 0, seven)) * 2: frozenset({f"parts.state {note}"}),
        must + raw_field(1, 0, seven) + raw_field(9, 0, seven): frozenset({f"state {note}", "#9"}),
    }
    wrong = {
        must + raw_field(1, 2, text): frozenset({"state"}),
        must + raw_field(4, 2, b"\3" + raw_field(1, 2, text)): frozenset({"parts"}),
        # As Protobuf has it: what is required was not sent.
        raw_field(5, 0, seven): frozenset({"must"}),
    }
    form = Protobuf(described_by, "shop.Old")
    check_format(spark, form, Samples(good, wrong, unknown, ()))
    raw = spark.createDataFrame([(payload,) for payload in unknown], "_raw binary")
    read = [(row["state"], row["before"], row["by_day"]) for row in form.parse(raw).collect()]
    assert read == [(None, before, {}) for before in ([], ["PAID"], ["PAID"], [], [], [])]


def test_protobuf_with_a_registry_keeps_the_contract_and_the_writer_names_what_nobody_declared(
    spark: SparkSession,
) -> None:
    inside = f'message_type {{ name: "Outer" nested_type {{ name: "Line" {fields(("sku", 1, "STRING"))} }} }}'
    newer = f"{inside} {LINE[:-1]} {fields(('unit', 7, 'STRING'))} }}"
    schemas = {
        number: base64.b64encode(file(content, package=package).SerializeToString()).decode()
        for number, (content, package) in {1: (LINE, "shop"), 2: (newer, "shop"), 3: (LINE, "other")}.items()
    }
    described_by = set_of(file(LINE))
    line = written(described_by, "shop.Line", sku="a", amount=1.0)
    with registry({**schemas, 4: "?"}, of="PROTOBUF") as url, registry({1: "{}"}) as of_avro:
        good = {
            b"\0\0\0\0\1\0" + line: {"sku": "a", "amount": 1.0},
            b"\0\0\0\0\1\2\0" + line: {"sku": "a", "amount": 1.0},
            b"\0\0\0\0\2\2\2" + line: {"sku": "a", "amount": 1.0},
        }
        unknown = {b"\0\0\0\0\2\2\2" + line + raw_field(7, 2, b"\2kg"): frozenset({"unit"})}
        reasons = {
            b"": "the payload does not begin with the id of a schema",
            b"\1\0\0\0\1\0" + line: "the payload does not begin with the id of a schema",
            b"\0\0\0\0\1": "the payload does not say which message it is",
            b"\0\0\0\0\1\1": "the payload does not say which message it is",
            b"\0\0\0\0\1" + b"\xca\1" + b"\0" * 101: "the payload does not say which message it is",
            b"\0\0\0\0\2\4\0\0" + line: "the payload is a message shop.Outer.Line, and no shop.Line",
            b"\0\0\0\0\3\0" + line: "the payload is a message other.Line, and no shop.Line",
            b"\0\0\0\0\1\2\4" + line: "schema 1 of the registry has no message [2] (list index out of range)",
            b"\0\0\0\0\x09\0" + line: "the registry has no schema 9",
            b"\0\0\0\0\1\0" + line[:-1]: "the payload is no message shop.Line (Error parsing message",
            b"\0\0\0\0\4\0" + line: "schema 4 of the registry has no message [0]",
        }
        form = Protobuf(described_by, "shop.Line", registry=url)
        check_format(spark, form, Samples(good, {}, unknown, tuple(reasons)))
        raw = spark.createDataFrame([*reasons.items()], "_raw binary, expected string")
        errors = {row["expected"]: row["_unreadable"] for row in form.parse(raw).collect()}
        raw = spark.createDataFrame([(b"\0\0\0\0\1\0" + line,)], "_raw binary")
        (row,) = Protobuf(described_by, "shop.Line", registry=of_avro).parse(raw).collect()
    assert [reason for reason in errors if not errors[reason].startswith(f"protobuf: {reason}")] == []
    assert row["_unreadable"] == "protobuf: schema 1 of the registry is of type AVRO"


def test_a_registry_that_is_away_rejects_no_message(spark: SparkSession) -> None:
    with registry({}) as gone:
        form = Protobuf(set_of(file(LINE)), "shop.Line", registry=gone)
    raw = spark.createDataFrame([(b"\0\0\0\0\1\0",)], "_raw binary")
    with pytest.raises(Exception, match="Connection refused"):
        form.parse(raw).collect()


SCALARS = set_of(
    file(
        f"""message_type {{ name: "Scalars" {ENTRY}
        {fields(*((name.lower(), place, name) for place, name in enumerate(ANY_OF, 1)))}
        {fields(*((f"many_{name.lower()}", 50 + place, f"{name} repeated") for place, name in enumerate(ANY_OF)))}
        {
            fields(
                ("counts", 90, "shop.Scalars.CountsEntry repeated"),
                ("at", 91, "google.protobuf.Timestamp"),
                ("maybe", 92, "google.protobuf.UInt64Value"),
                ("within", 93, "shop.Line"),
            )
        } }} {LINE}"""
    )
)
TIMES = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC))
VALUES = st.fixed_dictionaries(
    {},
    optional={
        **{name.lower(): values for name, (_, _, values) in ANY_OF.items()},
        **{f"many_{name.lower()}": st.lists(values, max_size=3) for name, (_, _, values) in ANY_OF.items()},
        "counts": st.dictionaries(ANY_OF["STRING"][2], ANY_OF["INT32"][2], max_size=3),
        "at": TIMES,
        "maybe": ANY_OF["UINT64"][2],
        "within": st.fixed_dictionaries({"sku": ANY_OF["STRING"][2], "amount": ANY_OF["DOUBLE"][2]}),
    },
)
ARROW = pa.schema(
    [
        *((name.lower(), type_) for name, (_, type_, _) in ANY_OF.items()),
        *((f"many_{name.lower()}", pa.list_(type_)) for name, (_, type_, _) in ANY_OF.items()),
        ("counts", pa.map_(pa.string(), pa.int32())),
        ("at", pa.timestamp("us", "UTC")),
        ("maybe", pa.decimal128(20)),
        ("within", pa.struct([("sku", pa.string()), ("amount", pa.float64())])),
        ("_unreadable", pa.string()),
        ("_wrong", pa.struct([("at", pa.string())])),
        ("_unknown", pa.list_(pa.string())),
    ]
)
DEFAULTS = {name: "" if name == "STRING" else b"" if name == "BYTES" else 0 for name in ANY_OF}


def expected_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values as they were given, and where there is none what proto3 says."""
    absent: dict[str, Any] = {name.lower(): default for name, default in DEFAULTS.items()}
    absent |= {f"many_{name.lower()}": [] for name in ANY_OF} | {"at": None, "maybe": None, "within": None}
    return {**absent, **values, "counts": sorted(values.get("counts", {}).items())}


def test_columns_have_the_types_of_the_fields() -> None:
    form = Protobuf(SCALARS, "shop.Scalars")
    types = {column.name: column.type for column in form.columns}
    assert {name: types[name.lower()] for name in ANY_OF} == {name: type_ for name, (type_, _, _) in ANY_OF.items()}
    assert types["many_uint64"] == "array<decimal(20,0)>"
    assert (types["counts"], types["within"]) == ("map<string,int>", "struct<`sku`:string,`amount`:double>")


@settings(max_examples=60, deadline=None)
@given(st.lists(VALUES, min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_any_message_is_read_as_it_was_written_and_no_bytes_make_the_decoder_fail(
    messages: list[dict[str, Any]], chance: Any
) -> None:
    decoder = ProtobufDecoder(tuple(ARROW.names[:-3]), ARROW, None, SCALARS, "shop.Scalars")
    payloads = []
    for values in messages:
        wrapped = {"maybe": {"value": values["maybe"]}} if "maybe" in values else {}
        payloads.append(written(SCALARS, "shop.Scalars", **{**values, **wrapped}))
    damaged = [bytes(chance.sample(payload, chance.randint(0, len(payload)))) for payload in payloads]
    raw = pa.array([*payloads, *damaged], pa.binary())
    # Text that is no UTF-8 is what some sources have.
    text = pa.StringArray.from_buffers(len(raw), *raw.buffers()[1:])
    (read,) = decoder.batches(iter([pa.record_batch({"_raw": text})]))
    rows = read.drop_columns(["_raw"]).to_pylist()
    for row, values in zip(rows, messages, strict=False):
        columns = {name: row[name] for name in ARROW.names[:-3]}
        assert {**columns, "counts": sorted(columns["counts"])} == expected_of(values)
        assert (row["_unreadable"], row["_wrong"], row["_unknown"]) == (None, None, None)


RECURSIVE = f'message_type {{ name: "Tree" {fields(("v", 1, "INT32"), ("left", 2, "shop.Tree"))} }}'


@pytest.mark.parametrize(
    ("descriptor_set", "message", "text"),
    [
        (b"\xff", "shop.Line", "descriptor set of Protobuf cannot be read .*--include_imports"),
        (SHOP, "Line", "no message 'Line'; it has .*shop.Line.*Name one with its package"),
        (
            FileDescriptorSet(file=[file(LINE)]).SerializeToString(),
            "shop.Line",
            "imports 'google/.*' and does not",
        ),
        (set_of(file(RECURSIVE)), "shop.Tree", "column 'left' .*the message 'shop.Tree' inside itself"),
        (set_of(file('message_type { name: "Empty" }')), "shop.Empty", "'shop.Empty' has no field"),
        (set_of(file(f'message_type {{ name: "M" {fields(("_v", 1, "INT32"))} }}')), "shop.M", "column '_v' is not"),
        (7, "shop.Line", "descriptor_set of Protobuf is 7, a int; write the path"),
        ("nowhere.desc", "shop.Line", "descriptor_set='nowhere.desc' of Protobuf cannot be read"),
    ],
)
def test_a_message_that_no_columns_can_have_is_refused(descriptor_set: Any, message: str, text: str) -> None:
    with pytest.raises(DeclarationError, match=text):
        Protobuf(descriptor_set, message)


def test_the_set_is_read_from_its_file_when_the_format_is_declared(tmp_path: Path) -> None:
    path = tmp_path / "shop.desc"
    path.write_bytes(SHOP)
    form = Protobuf(path, "shop.Order")
    path.unlink()
    assert form == Protobuf(SHOP, "shop.Order")
    assert repr(form) == "Protobuf(message='shop.Order', registry=None)"
