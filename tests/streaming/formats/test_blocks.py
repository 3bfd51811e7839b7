"""Payloads that are read together are what the strict reader says of each, and no payload fails a batch."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from streaming import Json
from streaming.base import arrow_schema
from streaming.formats import TYPED, UNKNOWN, UNREADABLE, WRONG
from streaming.formats.decoder import Decoder, Row
from streaming.formats.json import JsonDecoder
from streaming.formats.json_blocks import BlockReader, schema_of
from streaming.formats.json_text import object_of
from streaming.formats.nested import reader_of

SCHEMA = """id string not null, at timestamp, value double, n bigint, k int, small smallint, tiny tinyint, flag boolean,
    d date"""
VALUES = (
    *(
        '"a"',
        '"5"',
        '"true"',
        '""',
        '"{x}"',
        '"a}b"',
        '"NaN"',
        '"\\u0041"',
        '"é"',
        '"\\"}"',
        "'q'",
        '"\\ud83d"',
        '"\t"',
    ),
    *("Inf", "-Inf", "341e18", "99", "7292037017195216179838918152748866288", "68077429297530296468635786763"),
    *("1000", "1.005", "1.5000", '"1.5"', "1e5", "0.000000", "0e-50", "1e-31", "3.5e38", "3.4028235677973366e38"),
    *("5", "-5", "5.0", "1e2", "2.5", "-0.0", "-0", "0.1", "127", "128", "40000", "2147483648", "9223372036854775808"),
    *("1e400", "1e-400", "NaN", "Infinity", "-Infinity", "+1", "01", "1.", f"1.{'0' * 40}1", "1234567890" * 4),
    *("true", "false", "null", "{}", '{"v":1}', "[]", "[1]", '"\ud800"', '"\n"', "0x1", "1/**/", "1 //"),
    *('"2026-01-02T00:00:00Z"', '"2026-02-30T00:00:00Z"', '"x2026-01-02T00:00:00Z"', '"2026-01-02"', '"2026-02-30"'),
    *('"2026-01-02 00:00:00Z"', '"2026-01-02T00:00Z"', '"2026-01-02T00:00:00+00"', '"2026-01-02T00:00:00.1234567Z"'),
    *('"0000-01-01"', '"0000-01-01T00:00:00Z"', '"9999-12-31T23:59:59-01:00"', '"0001-01-01T00:00:00+01:00"'),
    *('"2026-01-02T24:00:00Z"', '"2026-01-02T00:00:60Z"', '"2026-01-02T00:00:00+19:00"', '"10000-01-01"'),
)
DECLARED = {
    "id": ('"a"', '"é"', '"\\u0041"', '"{x}"', '"\\ud83d\\ude00"', "null"),
    "at": ('"2026-01-02T00:00:00Z"', '"2026-01-02T00:00:00.123456+01:00"', '"2026-01-02T00:00:00-0130"', "null"),
    "value": ("5", "-5", "2.5", "-0.0", "1e2", "0.1", "1e308", "5e-324", "9007199254740993", "null"),
    "n": ("5", "-5", "9223372036854775807", "-9223372036854775808", "null"),
    "k": ("5", "-2147483648", "null"),
    "small": ("127", "-32768"),
    "tiny": ("127", "-128"),
    "flag": ("true", "false", "null"),
    "d": ('"2026-01-02"', '"0001-01-01"', '"9999-12-31"', "null"),
}
OTHERS = ("other", "ID", "id")
BEHIND, BEFORE = (
    (" ", "x", "{}", "}", "]{}", "\t", ",", "//c", "\r", "\n", '{"id":"b"}'),
    (" ", "\ufeff", "[", "x", "{"),
)


def payloads(number: int, seed: int, hostile: float) -> list[bytes | None]:
    """Objects of declared values, some of them with other values, other names, or damaged at an end."""
    drawn = random.Random(seed)
    lines: list[bytes | None] = []
    for _ in range(number):
        spoiled = drawn.random() < hostile
        fields = {name: drawn.choice(DECLARED[name]) for name in DECLARED if drawn.random() < 0.8}
        fields["id"] = '"a"'
        parts = [f'"{name}":{drawn.choice(("", "", " "))}{value}' for name, value in fields.items()]
        drawn.shuffle(parts)
        damage = drawn.random() if spoiled else 1
        if damage < 0.5:
            name = drawn.choice([*DECLARED])
            parts = [part for part in parts if not part.startswith(f'"{name}"')]
            parts.append(f'"{name}":{drawn.choice(VALUES)}')
        elif damage < 0.65:
            parts.append(f'"{drawn.choice(OTHERS)}":{drawn.choice(VALUES)}')
        text = "{" + ",".join(parts) + "}"
        if 0.65 <= damage < 0.8:
            text += drawn.choice(BEHIND)
        elif 0.8 <= damage < 0.9:
            text = drawn.choice(BEFORE) + text
        elif damage < 0.95:
            text = text if damage < 0.65 else text[:-1]
        elif damage < 1:
            lines.append(drawn.choice((None, b"", b"\xff", b'{"id":"\xff"}', b"{}", b'{"id":"\xed\xa0\xbd"}')))
            continue
        lines.append(text.encode("utf-8", "surrogatepass"))
    return lines


def decoder(form: Json) -> JsonDecoder:
    names = tuple(column.name for column in form.columns)
    reasons = pa.struct([(name, pa.string()) for name in names])
    added = [(UNREADABLE, pa.string()), (WRONG, reasons), (UNKNOWN, pa.list_(pa.string()))]
    types = pa.schema([*arrow_schema(form.schema), *(pa.field(*each) for each in added)])
    return JsonDecoder(names, types, None, form.columns, form.fields)


def rows(arrays: list[pa.Array]) -> list[str]:
    """Rows as text, in which minus zero is another number, and an instant that Python has not is a number."""
    plain = [array.cast(pa.int64()) if pa.types.is_timestamp(array.type) else array for array in arrays]
    return [str(row) for row in zip(*(array.to_pylist() for array in plain), strict=True)]


def read_alike(of: Any, sent: Any) -> list[str]:
    """The rows that payloads are read as together, which are those that the strict reader reads one by one."""
    payloads_ = sent if isinstance(sent, pa.Array) else pa.array(sent, pa.binary())
    both = rows(of.arrays(payloads_, None))
    assert both == rows(Decoder.arrays(of, payloads_, None))
    return both


@pytest.mark.parametrize(("hostile", "certain"), [(0.0, 3_000), (0.002, 1), (0.02, 0), (0.3, 0)])
def test_what_is_read_together_is_what_the_strict_reader_says(hostile: float, certain: int) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    sent = pa.array(payloads(3_000, seed, hostile), pa.binary())
    of = decoder(Json(SCHEMA))
    read_alike(of, sent)
    assert of._blocks is not None and of._blocks.read(sent).certain.sum() >= certain


def test_each_payload_is_read_as_its_source_says_that_it_was_written() -> None:
    of = decoder(Json("id string, x double, m decimal(3, 1)"))
    flat = decoder(Json("id string, x double"))
    sent = [
        f'{{"id":"{place}","x":{x}}}'.encode() for place, x in enumerate(('"NaN"', "-0.0", "1.5", '"Infinity"') * 2)
    ]
    typed = [True] * 4 + [False] * 4
    reason = "type: x is not a number within double, got "
    expected = [
        *(("0", "nan", None), ("1", "-0.0", None), ("2", "1.5", None), ("3", "inf", None)),
        *(
            ("4", "None", f'{reason}"NaN"'),
            ("5", "0.0", None),
            ("6", "1.5", None),
            ("7", "None", f'{reason}"Infinity"'),
        ),
    ]
    for each in (of, flat):
        for order in (range(8), range(7, -1, -1), (0, 4, 1, 5, 2, 6, 3, 7), range(4), range(4, 8), ()):
            batch = {
                "_raw": pa.array([sent[place] for place in order], pa.binary()),
                TYPED: pa.array([typed[place] for place in order], pa.bool_()),
            }
            (read,) = each.batches(iter([pa.RecordBatch.from_pydict(batch)]))
            assert read.schema.names == ["_raw", TYPED, *each.types.names]
            got = [(row["id"], repr(row["x"]), (row[WRONG] or {}).get("x")) for row in read.to_pylist()]
            assert got == [expected[place] for place in order]
    # Of a row of which the source says nothing, and of a source that says nothing of any, the strict reader says it.
    unsaid = {"_raw": pa.array(sent[:2], pa.binary()), TYPED: pa.array([None, None], pa.bool_())}
    for columns in (unsaid, {"_raw": unsaid["_raw"]}):
        (read,) = flat.batches(iter([pa.RecordBatch.from_pydict(columns)]))
        assert repr(read.column("x").to_pylist()) == "[None, 0.0]"


def test_payloads_of_a_table_are_read_together_where_they_have_no_more_than_json_can() -> None:
    of = decoder(Json(SCHEMA))._of_typed
    assert of._blocks is not None
    sent = [f'{{"id":"a","value":{value}}}'.encode() for value in ("-0.0", "0.0", "5e-324", "1.7976931348623157E308")]
    block = of._blocks.read(pa.array(sent, pa.binary()))
    assert block.certain.all() and repr(block.columns[2].to_pylist()) == "[-0.0, 0.0, 5e-324, 1.7976931348623157e+308]"
    many = pa.array([*sent, b'{"id":"a","value":"-Infinity"}', b'{"id":"a","value":NaN}'] * 50, pa.binary())
    read_alike(of, many)
    assert repr(of.arrays(many, None)[2].to_pylist()[:6]) == (
        "[-0.0, 0.0, 5e-324, 1.7976931348623157e+308, -inf, None]"
    )


@pytest.mark.parametrize("typed", [True, False])
def test_minus_zero_without_a_fraction_is_the_same_number_however_it_is_read(typed: bool) -> None:
    of = decoder(Json("x double, f double, n bigint, k int"))
    of = of._of_typed if typed else of
    sent = pa.array([b'{"x":-0,"f":-0.0,"n":-0,"k":-0}', b'{"x":0,"f":0.0,"n":0,"k":0}'], pa.binary())
    assert of._blocks is not None and of._blocks.read(sent).certain.all()
    read = read_alike(of, sent)
    minus = "-0.0" if typed else "0.0"
    assert read == [f"({minus}, {minus}, 0, 0, None, None, None)", "(0.0, 0.0, 0, 0, None, None, None)"]
    nested = decoder(Json("a array<decimal(3, 1)>, n array<tinyint>"))
    nested = nested._of_typed if typed else nested
    assert rows(nested.arrays(pa.array([b'{"a":[-0],"n":[-0]}'], pa.binary()), None)) == [
        "([Decimal('0.0')], [0], None, None, None)"
    ]


def test_what_arrow_refuses_keeps_nothing_beside_it_from_being_read_together() -> None:
    of = decoder(Json(SCHEMA))
    assert of._blocks is not None
    sent = payloads(2_000, 1, 0)
    for place in range(0, 2_000, 100):
        sent[place] = b'{"id":5}'
    assert of._blocks.read(pa.array(sent, pa.binary())).certain.sum() == 1_980
    # Where there are too many of them, that would cost more than to read all singly.
    sent[::10] = [b'{"id":5}'] * 200
    assert of._blocks.read(pa.array(sent, pa.binary())).certain.sum() == 0


@pytest.mark.parametrize("value", VALUES)
def test_each_hostile_value_beside_valid_ones_is_judged_alone(value: str) -> None:
    of = decoder(Json(SCHEMA))
    valid = b'{"id":"a","at":"2026-01-02T00:00:00Z","d":"2026-01-02","n":1}'
    sent = [
        payload
        for name in DECLARED
        for payload in (valid, f'{{"id":"b","{name}":{value}}}'.encode("utf-8", "surrogatepass"), valid)
    ]
    read_alike(of, sent)


def test_columns_of_certain_types_are_read_together_and_no_others() -> None:
    together = schema_of(Json("id string, n tinyint, v array<struct<a: int, d: date>>").columns, {"id": "_id"})
    elements = pa.list_(pa.struct([("a", pa.int32()), ("d", pa.string())]))
    assert together == pa.schema([("_id", pa.string()), ("n", pa.int8()), ("v", elements)])
    for type_ in ("map<string, int>", "array<map<string, int>>", "array<decimal(5, 2)>", "struct<a: map<string, int>>"):
        assert schema_of(Json(f"id string, v {type_}").columns, {}) is None


LEAVES = {
    "string": DECLARED["id"],
    "timestamp": DECLARED["at"],
    "double": DECLARED["value"],
    "float": ("5", "-2.5", "0.1", "-0.0", "1e-50", "16777217", "3.4028235677973362e38", "0.30000001192092896"),
    "decimal(5, 2)": ("1", "1.5", "-0", "0.00", "999.99", "-999.99", "1e2", "15e-1", "1.50"),
    "decimal(3)": ("7", "-999", "1e2", "0"),
    "decimal(38, 30)": ("0.1", "99999999.999999999999999999999999999999", "-1e-30"),
    "decimal(38, 18)": ("1", "-99999999999999999999", "1e-18"),
    "decimal(38, 38)": ("0.5", "-0.99999999999999999999999999999999999999"),
    "decimal(37, 2)": ("99999999999999999999999999999999999.99", "0.01"),
    "bigint": DECLARED["n"],
    "tinyint": DECLARED["tiny"],
    "boolean": DECLARED["flag"],
    "date": DECLARED["d"],
}
NAMES = ("a", "b", "id", "d.e", "é")
"""Of fields at every depth, so that a name is declared here and undeclared there."""


@dataclass(frozen=True)
class Type:
    """A type in DDL: a simple one, an array of its one part, or a struct of its parts, each of which may be needed."""

    ddl: str
    parts: tuple[tuple[str, Type, bool], ...] = ()

    def drawn(self, drawn: random.Random, hostile: float) -> str:
        """A value as JSON has it, in which a value may be none of its type, missing, undeclared or there twice."""
        if drawn.random() < hostile:
            return drawn.choice(VALUES)
        if self.ddl.startswith("array"):
            elements = (self._part(0, drawn, hostile) for _ in range(drawn.randrange(3)))
            return f"[{','.join(elements)}]"
        if not self.parts:
            return drawn.choice([each for each in LEAVES[self.ddl] if each != "null"])
        fields = [
            f'"{name}": {self._part(place, drawn, hostile)}'
            for place, (name, _, needed) in enumerate(self.parts)
            if drawn.random() < (1 - hostile if needed else 0.8)
        ]
        if drawn.random() < hostile:
            fields.append(f'"{drawn.choice(NAMES)}":{drawn.choice(VALUES)}')
        drawn.shuffle(fields)
        return f"{{{','.join(fields)}}}"

    def _part(self, place: int, drawn: random.Random, hostile: float) -> str:
        _, type_, needed = self.parts[place]
        is_null = drawn.random() < (hostile if needed else 0.2)
        return "null" if is_null else type_.drawn(drawn, hostile)


def drawn_type(drawn: random.Random, depth: int) -> Type:
    kind = drawn.choice(("leaf", "array", "struct")) if depth else "leaf"
    if kind == "leaf":
        return Type(drawn.choice([*LEAVES]))
    if kind == "array":
        inner = drawn_type(drawn, depth - 1)
        inner = Type("bigint") if inner.ddl.startswith("decimal") else inner
        return Type(f"array<{inner.ddl}>", (("", inner, False),))
    return drawn_struct(drawn, depth)


def drawn_struct(drawn: random.Random, depth: int) -> Type:
    names = drawn.sample(NAMES, drawn.randrange(1, 4))
    parts = tuple((name, drawn_type(drawn, depth - 1), drawn.random() < 0.4) for name in names)
    fields = ", ".join(f"`{name}`: {type_.ddl}{' not null' if needed else ''}" for name, type_, needed in parts)
    return Type(f"struct<{fields}>", parts)


def schema_in_ddl(type_: Type) -> str:
    fields = (f"`{name}` {each.ddl}{' not null' if needed else ''}" for name, each, needed in type_.parts)
    return ", ".join(fields).replace("`d.e` ", "`d_e` ")


@pytest.mark.parametrize("hostile", [0.0, 0.001, 0.02])
def test_what_is_nested_and_read_together_is_what_the_strict_reader_says(hostile: float) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    drawn = random.Random(seed)
    for _ in range(40):
        type_ = drawn_struct(drawn, 3)
        of = decoder(
            Json(schema_in_ddl(type_), {"d_e": "d.e"} if any(each[0] == "d.e" for each in type_.parts) else {})
        )
        lines = [type_.drawn(drawn, hostile).encode("utf-8", "surrogatepass") for _ in range(300)]
        sent = pa.array(lines, pa.binary())
        print(of.declared)
        for each in (of, of._of_typed):
            assert each._blocks is not None
            # A field of the name of a decimal may be a text elsewhere.
            assert hostile or "decimal" in type_.ddl or each._blocks.read(sent).certain.all()
            read_alike(each, sent)


@pytest.mark.parametrize("type_", LEAVES)
def test_a_missing_required_value_of_any_type_is_a_defect(type_: str) -> None:
    of = decoder(Json(f"id string, x {type_} not null"))
    sent = [b'{"id":"a"}', b'{"id":"b","x":null}', f'{{"id":"c","x":{LEAVES[type_][0]}}}'.encode()]
    reasons = [(row or {}).get("x") for row in of.arrays(pa.array(sent, pa.binary()), None)[3].to_pylist()]
    assert reasons == ["required: x is missing", "required: x is missing", None]


def test_a_field_of_another_name_than_its_column_is_read_together_too() -> None:
    of = decoder(Json("id string not null, n int", {"id": "_id"}))
    sent = pa.array([b'{"_id":"a","n":1}', b'{"id":"b"}'], pa.binary())
    assert rows(of.arrays(sent, None)) == [
        "('a', 1, None, None, None)",
        "(None, None, None, {'id': 'required: _id is missing', 'n': None}, ['id'])",
    ]


def test_nothing_at_all_and_nothing_certain_are_blocks_too() -> None:
    of = decoder(Json("id string"))
    for sent in ([], [None], [b"x"], [b"{x}"], [b"{}\n{}"]):
        assert len(of.arrays(pa.array(sent, pa.binary()), None)[0]) == len(sent)


@dataclass
class Careless(Decoder):
    """Yields what stands in the payload, which its type may not be able to keep."""

    @property
    def name(self) -> str:
        return "careless"

    def row(self, content: bytes, identity: int | None, client: Any) -> Row:
        return Row([json.loads(content)])


def test_a_value_that_arrow_cannot_take_is_the_matter_of_its_row_alone() -> None:
    added = [("v", pa.int8()), (UNREADABLE, pa.string()), (WRONG, pa.struct([("v", pa.string())]))]
    of = Careless(("v",), pa.schema([*added, (UNKNOWN, pa.list_(pa.string()))]), None)
    values, reasons, *_ = of.arrays(pa.array([b"1", b"300", b'"x"', None, b"2"], pa.binary()), None)
    assert values.to_pylist() == [1, None, None, None, 2]
    assert [reason and reason[:56] for reason in reasons.to_pylist()] == [
        None,
        "careless: a value is none of its declared type (Value 30",
        "careless: a value is none of its declared type (Could no",
        None,
        None,
    ]


def test_a_reader_of_blocks_says_which_payloads_are_certain() -> None:
    form = Json("id string not null, value double")
    schema = schema_of(form.columns, {})
    assert schema is not None
    sent = [
        b'{"id":"a"}',
        b'{"value":1}',
        b'{"id":"b","value":NaN}',
        b'{"id":5}',
        b"x",
        None,
        b'{"id":"c","value":-0.0}',
    ]
    block = BlockReader(form.columns, schema, [pa.string(), pa.float64()]).read(pa.array(sent, pa.binary()))
    assert block.certain.tolist() == [True, False, False, False, False, False, True]
    assert [str(column.to_pylist()) for column in block.columns] == ["['a', 'c']", "[None, 0.0]"]
    assert reader_of(form.columns)(object_of(b'{"id":"c","value":-0.0}')).values == ["c", 0.0]


UNDECLARED = (
    *('"note":"n"', '"note":null', '"note": null', '"note":"x\\"note\\":null"', '"note":5', '"other":1', '"other":2.5'),
    *('"other":"text"', '"flagged":true', '"list":[1,2]', '"list":[]', '"list":["a"]', '"inner":{"a":1}'),
    *(
        '"inner":{"note":null}',
        '"inner":{"a":NaN}',
        '"other":NaN',
        '"other":Inf',
        '"other":-Inf',
        '"other":1e400',
        '"n\\u006fte":null',
        '"n\\u006fte":1',
    ),
    *('"é":1', '"":2', '"a b":3', '"note":"2026-01-01T00:00:00Z"', f'"deep":{"[" * 501}{"]" * 501}', '"a.b":null'),
    *(
        '"note":1,"note":2',
        '"other":12345678901234567890123',
        '"at ":"x"',
        '"note":"\\ud800"',
        '"id ":"{"',
        '"x":"a:b"',
    ),
)


@pytest.mark.parametrize("share", [0.02, 0.3, 1.0])
def test_undeclared_fields_of_payloads_that_are_read_together_are_named_as_by_the_strict_reader(share: float) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    drawn = random.Random(seed)
    for _ in range(20):
        kinds = drawn.sample(UNDECLARED, drawn.randrange(1, 6))
        sent = []
        for place in range(400):
            others = [drawn.choice(kinds) for _ in range(drawn.randrange(1, 3))] if drawn.random() < share else []
            sent.append(f"{{{','.join([f'''{chr(34)}id{chr(34)}:{chr(34)}{place}{chr(34)}''', *others])}}}".encode())
        of = decoder(Json("id string, note_ string, n bigint"))
        for payloads_ in (pa.array(sent, pa.binary()), pa.array(sent[::-1], pa.binary())):
            read_alike(of, payloads_)


def test_payloads_that_all_have_undeclared_fields_are_read_together() -> None:
    of = decoder(Json("id string, n bigint"))
    sent = [f'{{"id":"{place}","n":1,"note":"a","size":{place},"gone":null}}'.encode() for place in range(1_000)]
    assert of._blocks is not None
    block = of._blocks.read(pa.array(sent, pa.binary()))
    assert block.certain.all() and set(map(str, block.unknown.to_pylist())) == {"['gone', 'note', 'size']"}


def test_numbers_with_few_digits_are_read_together_and_texts_in_their_place_are_not() -> None:
    of = decoder(Json("id string, price struct<amount: decimal(5, 2), share: float>"))
    sent = [
        f'{{"id":"{place}","price":{{"amount":{amount},"share":0.1}}}}'.encode()
        for place, amount in enumerate(("1.5", "999.99", "null", "1000", '"1.5"', '"x"'))
    ]
    assert of._blocks is not None
    block = of._blocks.read(pa.array(sent[:5], pa.binary()))
    assert block.certain.tolist() == [True, True, True, False, False]
    read_alike(of, sent)


@pytest.mark.parametrize(
    ("type_", "number"),
    [
        ("decimal(38, 18)", "341e18"),
        ("decimal(38, 38)", "99"),
        ("decimal(38, 2)", "7292037017195216179838918152748866288"),
        ("decimal(37, 2)", "6895404696626466052508710092098042956"),
        ("decimal(36, 10)", "68077429297530296468635786763"),
    ],
)
def test_a_number_too_large_for_its_decimal_is_rejected_however_many_bits_it_has(type_: str, number: str) -> None:
    of = decoder(Json(f"x {type_}"))
    sent = pa.array([f'{{"x":{number}}}'.encode()], pa.binary())
    read_alike(of, sent)
    assert of.arrays(sent, None)[0].null_count == 1


@pytest.mark.parametrize("payload", ['{"x":{"a\\/b":"1.5"}}', '{"x":{"a\\u002fb":"1.5"}}', '{"x":{"a/b": "1.5"}}'])
def test_a_text_is_no_decimal_however_its_name_is_written(payload: str) -> None:
    of = decoder(Json("x struct<`a/b`: decimal(5, 2)>"))
    sent = pa.array([payload.encode()], pa.binary())
    read_alike(of, sent)
    assert of.arrays(sent, None)[0].null_count == 1


@pytest.mark.parametrize(
    "value",
    [
        *("[" * levels + "]" * levels for levels in (150, 450, 1_000, 30_000)),
        *('{"a":' * levels + "1" + "}" * levels for levels in (150, 450, 1_000, 30_000)),
    ],
    ids=lambda value: f"{value[0]}{len(value)}",
)
def test_values_within_each_other_end_neither_the_process_nor_the_batch(value: str) -> None:
    of = decoder(Json("id string, s struct<a: int>"))
    for payload in (f'{{"id":"a","deep":{value}}}', f'{{"id":"a","s":{{"a":1,"deep":{value}}}}}', f'{{"id":{value}}}'):
        sent = pa.array([b'{"id":"b"}', payload.encode()], pa.binary())
        read_alike(of, sent)


@pytest.mark.parametrize("payload", [b'{"id":"a","\xff":1}', b'{"s":{"a":1,"\xff":2}}'])
def test_an_undeclared_name_that_is_no_text_rejects_its_row_alone(payload: bytes) -> None:
    of = decoder(Json("id string, s struct<a: int>"))
    sent = pa.array([b'{"id":"b"}', payload], pa.binary())
    read_alike(of, sent)
    assert of.arrays(sent, None)[2].to_pylist() == [None, "json: the payload is not UTF-8"]


def test_defects_keep_no_reader_from_learning_undeclared_fields() -> None:
    of = decoder(Json("id string, n int"))
    assert of._blocks is not None
    for _ in range(30):
        of.arrays(pa.array([b'{"n":"x"}'] * 3, pa.binary()), None)
    assert of._blocks.read(pa.array([b'{"n":1,"new":2}'] * 500, pa.binary())).certain.all()


def test_payloads_with_undeclared_fields_in_what_is_nested_are_read_together() -> None:
    of = decoder(Json("id string, buyer struct<name: string>, items array<struct<sku: string, n: int>>"))
    sent = [
        f'{{"id":"{place}","buyer":{{"name":"a","age":{age}}},"items":[{{"sku":"s"}},{{"n":1,"size":[{place}]}}]}}'.encode()
        for place, age in enumerate([40, "null", 41.5, 1] * 100)
    ]
    assert of._blocks is not None
    block = of._blocks.read(pa.array(sent, pa.binary()))
    assert block.certain.all() and set(map(str, block.unknown.to_pylist())) == {"['buyer.age', 'items.size']"}
    read_alike(of, sent)


def test_a_sender_that_invents_fields_teaches_no_reader_more_than_it_can_keep() -> None:
    of = decoder(Json("id string"))
    assert of._blocks is not None
    for number in range(40):
        sent = [f'{{"id":"a","f{number}_{place}":1}}'.encode() for place in range(60)]
        assert not of._blocks.read(pa.array(sent, pa.binary())).certain.any()
        few = [f'{{"id":"a","g{number}":1}}'.encode()] * 5
        read_alike(of, few)
    assert len(of._blocks._undeclared.schema) <= 51
