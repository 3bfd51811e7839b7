"""Messages of Protobuf without Spark: no number is cut, no text is mended, and what is refused is told by its path."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.base.errors import DeclarationError
from streaming.formats.protobuf import Protobuf
from streaming.formats.protobuf_decoder import ProtobufDecoder
from tests.streaming.formats.test_protobuf import fields, file, raw_field, set_of, written
from tests.support.decoders import Decoded, arrow_schema, decode
from tests.support.registry import registry

INSTANT = "an instant of the years 1 to 9999"
INT, BIGINT = "a whole number within int", "a whole number within bigint"
UINT32, UINT64 = (f"a whole number from 0 to {2**bits - 1}" for bits in (32, 64))


def decoder_of(descriptor_set: bytes, message: str, url: str | None = None) -> ProtobufDecoder:
    columns = Protobuf(descriptor_set, message).columns
    return ProtobufDecoder(
        tuple(column.name for column in columns), arrow_schema(columns), url, descriptor_set, message
    )


def message(*declared: tuple[str, int, str], name: str = "M", more: str = "") -> str:
    return f'message_type {{ name: "{name}" {more} {fields(*declared)} }}'


def of(type_: str, syntax: str = "proto3", more: str = "") -> bytes:
    """A set with a message `shop.M` that has a field `v` of a type."""
    return set_of(file(f"{STATE} {LINE} {message(('v', 1, type_), more=more)}", syntax))


STATE = 'enum_type { name: "State" value { name: "OPEN" number: 0 } value { name: "PAID" number: 3 } }'
LINE = message(("sku", 1, "STRING"), ("qty", 2, "INT32"), ("at", 3, "google.protobuf.Timestamp"), name="Line")


def varint(number: int) -> bytes:
    number &= 2**64 - 1
    content = b""
    while number > 0x7F:
        content, number = content + bytes([number & 0x7F | 0x80]), number >> 7
    return content + bytes([number])


def zigzag(number: int) -> bytes:
    return varint(number << 1 ^ number >> 63)


def text(content: bytes, number: int = 1) -> bytes:
    return raw_field(number, 2, varint(len(content)) + content)


def one(descriptor_set: bytes, *payloads: bytes) -> Decoded:
    (read,) = decode(decoder_of(descriptor_set, "shop.M"), b"".join(payloads))
    return read


def v(number: int) -> bytes:
    return raw_field(1, 0, varint(number))


@pytest.mark.parametrize(
    ("type_", "payload", "words", "value"),
    [
        ("INT32", v(2**31), INT, str(2**31)),
        ("INT32", v(2**32 + 1), INT, str(2**32 + 1)),
        ("INT32", v(-(2**31) - 1), INT, str(-(2**31) - 1)),
        ("SINT32", raw_field(1, 0, zigzag(-(2**31) - 1)), INT, str(-(2**31) - 1)),
        ("UINT32", v(2**32), UINT32, str(2**32)),
        ("UINT32", v(-1), UINT32, str(2**64 - 1)),
        ("BOOL", v(2), "true or false", "2"),
        ("shop.State", v(2**32 + 3), "a number of an enum", str(2**32 + 3)),
        ("STRING", text(b"a\xff"), "text in UTF-8", "0x61ff"),
        ("INT32", text(b"x"), INT, "0x78 of type bytes"),
        ("STRING", v(7), "text in UTF-8", "7 of type varint"),
        ("BYTES", v(7), "bytes", "7 of type varint"),
        ("FLOAT", v(7), "a number within float", "7 of type varint"),
        ("DOUBLE", raw_field(1, 5, b"\1\0\0\0"), "a number within double", "1 of type fixed32"),
        ("INT64", raw_field(1, 1, b"\1" + b"\0" * 7), BIGINT, "1 of type fixed64"),
        ("shop.Line", v(7), "a message shop.Line", "7 of type varint"),
        ("shop.Line", b"\x0b\x0c", "a message shop.Line", "{} of type group"),
        (
            "google.protobuf.Timestamp",
            text(raw_field(1, 0, varint(2**40))),
            INSTANT,
            f'{{"seconds":{2**40},"nanos":0}}',
        ),
        (
            "google.protobuf.Timestamp",
            text(raw_field(2, 0, varint(10**9))),
            INSTANT,
            '{"seconds":0,"nanos":1000000000}',
        ),
        ("google.protobuf.Timestamp", text(raw_field(2, 0, varint(-1))), INSTANT, '{"seconds":0,"nanos":-1}'),
    ],
)
def test_a_value_that_its_column_cannot_keep_is_refused_and_shown(
    type_: str, payload: bytes, words: str, value: str
) -> None:
    read = one(of(type_), payload)
    assert (read.unreadable, read.wrong) == (None, {"v": f"type: v is not {words}, got {value}"})
    assert read.values == {"v": None}


@pytest.mark.parametrize(
    ("type_", "payload", "value"),
    [
        ("INT32", v(-1), -1),
        ("INT32", v(2**31 - 1), 2**31 - 1),
        ("INT32", v(-(2**31)), -(2**31)),
        ("SINT32", raw_field(1, 0, zigzag(-(2**31))), -(2**31)),
        ("UINT32", v(2**32 - 1), 2**32 - 1),
        ("BOOL", v(1), True),
        ("BOOL", b"", False),
        ("shop.State", v(3), "PAID"),
        ("shop.State", v(-7), "-7"),
        ("shop.State repeated", text(b"\0\3"), ["OPEN", "PAID"]),
        ("STRING", text("ü".encode()), "ü"),
        ("INT32", v(1) + v(2), 2),
        ("google.protobuf.Timestamp", text(v(5)), datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)),
        (
            "google.protobuf.Timestamp",
            text(v(5) + raw_field(2, 0, varint(10**9 - 1000))),
            datetime(1970, 1, 1, 0, 0, 5, 999_999, tzinfo=UTC),
        ),
        ("google.protobuf.BoolValue", text(v(1)), True),
        ("google.protobuf.Int32Value", text(b""), 0),
        ("google.protobuf.ListValue", text(text(text(b"x", 3)) + text(b"")), '["x", null]'),
        ("google.protobuf.Value", text(raw_field(4, 0, b"\1")), "true"),
        ("google.protobuf.Value", text(raw_field(1, 0, b"\0")), "null"),
        ("google.protobuf.Struct", text(text(text(b"k") + text(text(b""[:0], 5), 2))), '{"k": {}}'),
    ],
)
def test_a_value_is_read_as_it_was_written(type_: str, payload: bytes, value: Any) -> None:
    read = one(of(type_), payload)
    assert (read.unreadable, read.wrong, read.values) == (None, {}, {"v": value})
    assert type(read.values["v"]) is type(value)


@pytest.mark.parametrize(
    ("type_", "payload", "reason"),
    [
        ("shop.Line repeated", text(b"") + text(raw_field(2, 0, varint(2**40))), f"v[1].qty is not {INT}, got {2**40}"),
        ("shop.Line", text(text(b"\xff")), "v.sku is not text in UTF-8, got 0xff"),
        ("shop.Line", text(text(b"x", 2)), f"v.qty is not {INT}, got 0x78 of type bytes"),
        ("shop.Line", text(text(text(b"x"), 3)), f"v.at.seconds is not {BIGINT}, got 0x78 of type bytes"),
        ("google.protobuf.Int32Value", text(v(2**40)), f"v.value is not {INT}, got {2**40}"),
        ("INT32 repeated", text(b"\1" + varint(2**40)), f"v[1] is not {INT}, got {2**40}"),
        ("STRING repeated", text(b"a") + text(b"\xff"), "v[1] is not text in UTF-8, got 0xff"),
        (
            "google.protobuf.Value",
            text(raw_field(2, 1, b"\0" * 6 + b"\xf0\x7f")),
            "v is not a number of JSON, got Infinity",
        ),
        ("google.protobuf.Value", text(text(b"\xff", 3)), "v is not text in UTF-8, got 0xff"),
    ],
)
def test_the_reason_has_the_path_of_what_is_within(type_: str, payload: bytes, reason: str) -> None:
    assert one(of(type_), payload).wrong == {"v": f"type: {reason}"}


def entries(key: str, value: str, *more: str, syntax: str = "proto3") -> bytes:
    inner = f"{fields(('key', 1, key), ('value', 2, value))} options {{ map_entry: true }}"
    return of("shop.M.VEntry repeated", syntax, f'nested_type {{ name: "VEntry" {inner} }}')


def test_entries_of_maps_are_judged_as_anything_else() -> None:
    counts = entries("STRING", "INT32")
    a = text(text(b"a") + raw_field(2, 0, varint(1)))
    assert one(counts, a, text(text(b"a") + raw_field(2, 0, b"\2")), text(b"")).values == {"v": [("a", 2), ("", 0)]}
    wrong = one(counts, a, text(text(b"b") + raw_field(2, 0, varint(2**40)))).wrong
    assert wrong == {"v": f'type: v["b"] is not {INT}, got {2**40}'}
    assert one(counts, a, text(text(b"\xff"))).wrong == {"v": "type: v is not text in UTF-8, got 0xff"}
    assert one(counts, text(v(1))).wrong == {"v": "type: v is not text in UTF-8, got 1 of type varint"}
    assert one(counts, v(1)).wrong == {"v": "type: v is not a map, got 1 of type varint"}
    lines = entries("INT32", "shop.Line")
    line = text(text(b"x") + raw_field(9, 0, b"\1"), 2)
    read = one(lines, text(v(5) + line))
    assert (read.values, read.unknown) == ({"v": [(5, {"sku": "x", "qty": 0, "at": None})]}, ("v.#9",))
    assert one(lines, text(v(5) + text(text(b"\xff"), 2))).wrong == {
        "v": "type: v[5].sku is not text in UTF-8, got 0xff"
    }
    closed = entries("STRING", "shop.State", syntax="proto2")
    read = one(closed, text(text(b"a") + raw_field(2, 0, b"\7")), text(text(b"b") + raw_field(2, 0, b"\3")))
    assert (read.values, read.unknown) == ({"v": [("b", "PAID")]}, ("v (a number without a name)",))


@pytest.mark.parametrize("syntax", ["proto2", "proto3"])
@pytest.mark.parametrize(
    ("key", "value", "entry", "pair"),
    [
        ("STRING", "INT32", raw_field(2, 0, b"\5"), ("", 5)),
        ("STRING", "INT32", text(b"k"), ("k", 0)),
        ("INT64", "STRING", b"", (0, "")),
        ("BOOL", "BYTES", b"", (False, b"")),
        ("STRING", "shop.State", text(b"k"), ("k", "OPEN")),
        ("STRING", "google.protobuf.Timestamp", text(b"k"), ("k", datetime(1970, 1, 1, tzinfo=UTC))),
        ("STRING", "google.protobuf.Int32Value", text(b"k"), ("k", 0)),
    ],
)
def test_what_an_entry_of_a_map_leaves_out_is_the_default(
    syntax: str, key: str, value: str, entry: bytes, pair: tuple[Any, Any]
) -> None:
    read = one(entries(key, value, syntax=syntax), text(entry))
    assert (read.unreadable, read.wrong, read.unknown, read.values) == (None, {}, (), {"v": [pair]})


def test_a_message_that_an_entry_of_a_map_leaves_out_is_an_empty_one() -> None:
    assert one(entries("STRING", "shop.Line"), text(text(b"k"))).values == {
        "v": [("k", {"sku": "", "qty": 0, "at": None})]
    }
    assert one(entries("STRING", "shop.Line", syntax="proto2"), text(text(b"k"))).values == {
        "v": [("k", {"sku": None, "qty": None, "at": None})]
    }


CLOSED = "type: v{} is not a number of an enum, got {}"


@pytest.mark.parametrize(
    ("type_", "payload", "place"),
    [
        ("shop.State", v(2**32 + 3), ""),
        ("shop.State repeated", v(3) + v(2**32 + 3), "[1]"),
        ("shop.State repeated", text(b"\3" + varint(2**32 + 3)), "[1]"),
        ("shop.Line repeated", text(raw_field(4, 0, varint(2**32 + 3))), "[0].state"),
        ("shop.M.VEntry repeated", text(text(b"a") + raw_field(2, 0, varint(2**32 + 3))), '["a"]'),
    ],
)
def test_a_number_of_a_closed_enum_is_never_cut_to_that_of_another_symbol(
    type_: str, payload: bytes, place: str
) -> None:
    entry = f"{fields(('key', 1, 'STRING'), ('value', 2, 'shop.State'))} options {{ map_entry: true }}"
    line = message(("state", 4, "shop.State"), name="Line")
    declared = message(("v", 1, type_), more=f'nested_type {{ name: "VEntry" {entry} }}')
    read = one(set_of(file(f"{STATE} {line} {declared}", "proto2")), payload)
    assert (read.unreadable, read.wrong) == (None, {"v": CLOSED.format(place, 2**32 + 3)})


def test_a_number_without_a_name_in_a_closed_enum_reads_as_not_sent() -> None:
    note = ("v (a number without a name)",)
    for type_, payload, value in (
        ("shop.State", v(-7), None),
        ("shop.State", v(2**31 - 1), None),
        ("shop.State repeated", text(b"\3" + varint(-7) + b"\0"), ["PAID", "OPEN"]),
    ):
        read = one(of(type_, "proto2"), payload)
        assert (read.wrong, read.unknown, read.values) == ({}, note, {"v": value})
    old = file(STATE, "proto2", "old")
    old.name = "old.proto"
    new = file(message(("v", 1, "old.State")))
    new.dependency.append("old.proto")
    read = one(set_of(new, old), v(7))
    assert (read.wrong, read.unknown, read.values) == ({}, note, {"v": None})
    read = one(of("shop.State", "proto2"), text(b"x"))
    assert read.wrong == {"v": f"{CLOSED.format('', '0x78')} of type bytes"}


def test_unknown_fields_are_told_by_their_paths_at_every_depth() -> None:
    extra = raw_field(9, 0, b"\1")
    read = one(of("shop.Line repeated"), text(extra) + text(extra + text(extra, 3)), raw_field(8, 0, b"\1"))
    assert set(read.unknown) == {"#8", "v.#9", "v.at.#9"}
    assert one(of("google.protobuf.Struct"), text(extra)).unknown == ("v.#9",)
    assert one(of("google.protobuf.StringValue"), text(extra)).unknown == ("v.#9",)


def test_what_is_required_within_messages_is_missed_by_its_path() -> None:
    inner = message(("x", 1, "INT32 required"), name="Inner")
    described_by = set_of(
        file(f"{inner} {message(('v', 1, 'shop.Inner repeated'), ('id', 2, 'INT32 required'))}", "proto2")
    )
    read = one(described_by, text(v(1)) + text(b""))
    assert read.wrong == {"v": "required: v[1].x is missing", "id": "required: id is missing"}


def test_groups_and_fields_of_a_oneof_are_read() -> None:
    group = 'nested_type { name: "V" field { name: "x" number: 1 type: TYPE_INT32 label: LABEL_OPTIONAL } }'
    field = 'field { name: "v" number: 1 type: TYPE_GROUP type_name: ".shop.M.V" label: LABEL_OPTIONAL }'
    described_by = set_of(file(f'message_type {{ name: "M" {group} {field} }}', "proto2"))
    assert one(described_by, b"\x0b" + v(5) + b"\x0c").values == {"v": {"x": 5}}
    choice = 'oneof_decl { name: "c" }'
    named = [
        f'field {{ name: "{n}" number: {i} type: TYPE_INT32 label: LABEL_OPTIONAL oneof_index: 0 }}'
        for i, n in enumerate("ab", 1)
    ]
    described_by = set_of(file(f'message_type {{ name: "M" {choice} {" ".join(named)} }}'))
    assert one(described_by, v(1) + raw_field(2, 0, b"\0")).values == {"a": None, "b": 0}


def test_a_default_of_proto2_is_no_value_that_was_sent() -> None:
    described_by = FileDescriptorProto()
    described_by.CopyFrom(
        file(f"{STATE} {message(('v', 1, 'shop.State'), ('s', 2, 'STRING'), ('b', 3, 'BOOL'))}", "proto2")
    )
    for field, default in zip(described_by.message_type[0].field, ("PAID", 'a\\"ü', "true"), strict=True):
        field.default_value = default
    assert one(set_of(described_by), b"").values == {"v": None, "s": None, "b": None}


def framed(schema: str, url_of: Any, declared: str, payload: bytes) -> Decoded:
    serialized = base64.b64encode(file(f"{STATE} {LINE} {schema}").SerializeToString()).decode()
    with registry({1: serialized}, of="PROTOBUF") as url:
        descriptor_set = set_of(file(f"{STATE} {LINE} {declared}"))
        # The message behind the enum and the line is the second one of its file.
        (read,) = decode(decoder_of(descriptor_set, "shop.M", url), b"\0\0\0\0\1\2\2" + payload)
    return read


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("theirs", "ours", "payload", "value", "reason"),
    [
        ("INT64", "INT32", v(5), 5, None),
        ("INT64", "INT32", v(3_000_000_000), None, f"{INT}, got 3000000000"),
        ("INT32", "INT64", v(-5), -5, None),
        ("UINT64", "INT64", v(2**64 - 1), None, f"{BIGINT}, got {2**64 - 1}"),
        ("UINT64", "INT64", v(2**62), 2**62, None),
        ("INT64", "UINT64", v(-1), None, f"{UINT64}, got -1"),
        ("INT32", "UINT32", v(-1), None, f"{UINT32}, got -1"),
        ("UINT32", "INT32", v(7), 7, None),
        ("INT32", "BOOL", v(-1), None, "true or false, got -1"),
        ("INT32", "shop.State", v(3), "PAID", None),
        ("shop.State", "INT32", v(3), 3, None),
        ("FIXED32", "SFIXED32", raw_field(1, 5, b"\xff" * 4), None, f"{INT}, got {2**32 - 1}"),
        ("SFIXED32", "FIXED32", raw_field(1, 5, b"\xff" * 4), None, f"{UINT32}, got -1"),
        ("SFIXED64", "FIXED64", raw_field(1, 1, b"\xff" * 8), None, f"{UINT64}, got -1"),
        ("SINT64", "SINT32", raw_field(1, 0, zigzag(-5)), -5, None),
        ("SINT64", "INT64", raw_field(1, 0, zigzag(-5)), None, f"{BIGINT}, got a value of type sint64"),
        ("INT32", "SINT32", v(5), None, f"{INT}, got a value of type int32"),
        ("DOUBLE", "FIXED64", raw_field(1, 1, b"\1" * 8), None, f"{UINT64}, got a value of type double"),
        ("FIXED32", "FLOAT", raw_field(1, 5, b"\1" * 4), None, "a number within float, got a value of type fixed32"),
        ("BYTES", "STRING", text(b"x"), "x", None),
        ("STRING", "BYTES", text(b"x"), b"x", None),
        ("STRING", "shop.Line", text(b""), None, "a message shop.Line, got a value of type string"),
        ("shop.Line", "BYTES", text(b""), b"", None),
    ],
)
def test_a_value_is_judged_by_the_type_that_it_was_written_as(
    theirs: str, ours: str, payload: bytes, value: Any, reason: str | None
) -> None:
    read = framed(message(("v", 1, theirs)), None, message(("v", 1, ours)), payload)
    wrong = {} if reason is None else {"v": f"type: v is not {reason}"}
    assert read.unreadable is None and read.wrong == wrong
    assert str(read.values["v"]) == str(value)


def test_the_writer_names_unknown_fields_at_every_depth() -> None:
    theirs = message(("v", 1, "shop.Line"), ("w", 2, "shop.More"), ("new", 3, "INT32"), more="")
    more = message(("x", 1, "INT32"), ("unit", 2, "STRING"), name="More")
    ours = message(("v", 1, "shop.Line"), ("w", 2, "shop.More"))
    payload = text(text(b"kg", 2), 2) + raw_field(3, 0, b"\1")
    read = framed(f"{theirs} {more}", None, f"{ours} {message(('x', 1, 'INT32'), name='More')}", payload)
    assert set(read.unknown) == {"new", "w.unit"}
    assert read.wrong == {}


def test_files_that_the_writers_file_imports_name_their_fields() -> None:
    more = file(message(("x", 1, "INT32"), ("unit", 2, "STRING"), name="More"), package="other")
    main = file(message(("w", 1, "other.More")))
    texts = [base64.b64encode(each.SerializeToString()).decode() for each in (main, more)]
    more.name = "more.proto"
    declared = file(message(("x", 1, "INT32"), name="More"), package="other")
    declared.name = "more.proto"
    main.dependency.append("more.proto")
    reference = {"name": "more.proto", "subject": "more", "version": 1}
    with registry({1: texts[0]}, "PROTOBUF", {1: [reference]}, {("more", 1): texts[1]}) as url:
        (read,) = decode(decoder_of(set_of(main, declared), "shop.M", url), b"\0\0\0\0\1\0" + text(text(b"kg", 2)))
    assert (read.unreadable, read.unknown, read.values) == (None, ("w.unit",), {"w": {"x": 0}})


def test_names_that_spark_does_not_tell_apart_are_refused() -> None:
    twice = message(("id", 1, "INT32"), ("ID", 2, "INT32"))
    with pytest.raises(DeclarationError, match=r"'shop\.M' has the field 'id' twice, in upper and lower case"):
        Protobuf(set_of(file(twice)), "shop.M")
    inner = message(("id", 1, "INT32"), ("ID", 2, "INT32"), name="Inner")
    with pytest.raises(DeclarationError, match=r"'shop\.Inner' has the field 'id' twice"):
        Protobuf(set_of(file(f"{inner} {message(('v', 1, 'shop.Inner'))}")), "shop.M")


def test_bytes_of_googles_library_are_read() -> None:
    descriptor_set = of("shop.Line repeated")
    payload = written(descriptor_set, "shop.M", v=[{"sku": "a", "qty": -1}])
    assert one(descriptor_set, payload).values == {"v": [{"sku": "a", "qty": -1, "at": None}]}


WHOLE = {
    **dict.fromkeys(("INT32", "SINT32", "SFIXED32"), (-(2**31), 2**31 - 1)),
    **dict.fromkeys(("INT64", "SINT64", "SFIXED64"), (-(2**63), 2**63 - 1)),
    **dict.fromkeys(("UINT32", "FIXED32"), (0, 2**32 - 1)),
    **dict.fromkeys(("UINT64", "FIXED64"), (0, 2**64 - 1)),
    "BOOL": (0, 1),
}
"""What each declared type of numbers has room for."""
WIDEST = {"BOOL": "UINT64", **{type_: type_.replace("32", "64") for type_ in WHOLE if type_[0] in "IUS"}}
WIDEST |= {"SFIXED32": "SFIXED32", "SFIXED64": "SFIXED64"}
"""What is written as the same bytes, with more room."""

Expected = Callable[[Any, str], Any]
"""What must come out of a value at a path; raises `Rejected` with the path of what must be refused."""


class Rejected(Exception):
    """The value at this path must be refused."""


def leaf(type_: str) -> Expected:
    def expected(value: Any, path: str) -> Any:
        if type_ == "STRING":
            try:
                return value.decode()
            except UnicodeDecodeError:
                raise Rejected(path) from None
        low, high = WHOLE[type_]
        if not low <= value <= high:
            raise Rejected(path)
        return bool(value) if type_ == "BOOL" else value

    return expected


def listed(each: Expected) -> Expected:
    return lambda values, path: [each(value, f"{path}[{place}]") for place, value in enumerate(values)]


def structs(fields_of: dict[str, Expected]) -> Expected:
    return lambda value, path: {name: each(value[name], f"{path}.{name}") for name, each in fields_of.items()}


@dataclass
class Pair:
    """A message as it is written and as it is declared, in texts, its values, and what must come out of each field."""

    name: str
    theirs: str
    ours: str
    values: st.SearchStrategy[Any]
    wanted: dict[str, Expected]


_NUMBERS = count()


@st.composite
def pairs(draw: st.DrawFn, depth: int = 2) -> Pair:
    """Messages of which numbers are written with more room than declared, text as bytes, and a field more."""
    pair = Pair("M" if depth == 2 else f"M{next(_NUMBERS)}x", "", "", st.none(), {})
    theirs, ours, values = [], [], {}
    for number in range(1, draw(st.integers(2, 4))):
        field, label = f"f{number}", draw(st.sampled_from(["", " repeated"]))
        if depth and draw(st.booleans()):
            inner = draw(pairs(depth - 1))
            pair.theirs, pair.ours = f"{pair.theirs} {inner.theirs}", f"{pair.ours} {inner.ours}"
            their_type = our_type = f"shop.{inner.name}"
            value, expected = inner.values, structs(inner.wanted)
        else:
            our_type = draw(st.sampled_from([*WHOLE, "STRING"]))
            their_type = "BYTES" if our_type == "STRING" else WIDEST.get(our_type, our_type)
            low, high = WHOLE.get(their_type, (0, 0))
            room = WHOLE.get(our_type, (0, 0))
            value = st.binary(max_size=3) if our_type == "STRING" else st.integers(*room) | st.integers(low, high)
            expected = leaf(our_type)
        theirs.append((field, number, their_type + label))
        ours.append((field, number, our_type + label))
        values[field] = st.lists(value, max_size=3) if label else value
        pair.wanted[field] = listed(expected) if label else expected
    values["more"] = st.just(1)
    pair.theirs += message(*theirs, ("more", 9, "INT32"), name=pair.name)
    pair.ours += message(*ours, name=pair.name)
    pair.values = st.fixed_dictionaries(values)
    return pair


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_any_message_is_read_as_plain_python_has_it_or_refused_with_its_path(data: st.DataObject) -> None:
    pair = data.draw(pairs())
    value = data.draw(pair.values)
    payload = written(set_of(file(pair.theirs)), "shop.M", **value)
    read = one(set_of(file(pair.ours)), payload)
    assert read.unreadable is None and "#9" in read.unknown
    for name, expected in pair.wanted.items():
        try:
            column = expected(value[name], name)
        except Rejected as error:
            assert read.wrong[name].startswith(f"type: {error} is not ") and ", got " in read.wrong[name]
            assert read.values[name] is None
        else:
            assert name not in read.wrong and read.values[name] == column
