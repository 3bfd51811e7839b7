"""A value within others is judged as one at the top is, and the reason has its path and what is written there."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from decimal import Decimal
from time import process_time
from typing import Any

import pytest

from streaming import Json
from streaming.base import DeclarationError, columns_of
from streaming.formats.decoder import Row, Unreadable
from streaming.formats.json_text import DEEPEST, cut, object_of, shown_value, text_of
from streaming.formats.leaves import typed_leaf_of
from streaming.formats.nested import reader_of

ORDER = (
    "id string not null, items array<struct<price: decimal(10,2) not null, qty: int>>, "
    "by map<string, struct<n: bigint>>, at struct<`Street. Nr`: string, since: timestamp not null comment 'utc'>, "
    "tags array<array<string>>, days array<date>"
)
WHOLE = "the payload is not one JSON object"


def reader(schema: str) -> Callable[[str], Row]:
    read = reader_of(columns_of(schema))
    return lambda text: read(object_of(text.encode()))


def wrong(schema: str, text: str) -> dict[str, str]:
    row = reader(schema)(text)
    assert all(
        value is None or name not in (row.wrong or {}) for name, value in zip(names(schema), row.values, strict=True)
    )
    return dict(row.wrong or {})


def names(schema: str) -> list[str]:
    return [column.name for column in columns_of(schema)]


def test_a_nested_value_is_what_was_written() -> None:
    text = (
        '{"id":"a","items":[{"price":1.50,"qty":2},null,{"price":1e1,"qty":null}],"by":{"k":{"n":1},"l":null},'
        '"at":{"Street. Nr":"5","since":"1970-01-01T00:00:01Z"},"tags":[["x"],[],null],"days":["2026-01-01"]}'
    )
    row = reader(ORDER)(text)
    assert (row.wrong, row.unknown) == (None, None)
    assert row.values == [
        "a",
        [{"price": Decimal("1.50"), "qty": 2}, None, {"price": Decimal("10.00"), "qty": None}],
        [("k", {"n": 1}), ("l", None)],
        {"Street. Nr": "5", "since": 1_000_000},
        [["x"], [], None],
        [date(2026, 1, 1)],
    ]
    assert reader(ORDER)('{"id":"a"}') == Row(["a", None, None, None, None, None])


WRONG = {
    '"items":[{"price":1,"qty":1},{"price":1,"qty":2.5}]': (
        "type: items[1].qty is not a whole number within int, got 2.5"
    ),
    '"items":[{"price":"10,00"}]': 'type: items[0].price is not a number within decimal(10,2), got "10,00"',
    '"items":[{"price":19.999}]': "type: items[0].price is not a number within decimal(10,2), got 19.999",
    '"items":[{"price":1,"qty":3000000000}]': "type: items[0].qty is not a whole number within int, got 3000000000",
    '"items":[{"price":1,"qty":true}]': "type: items[0].qty is not a whole number within int, got true",
    '"items":[{"qty":1}]': "required: items[0].price is missing",
    '"items":[null,{"price":null}]': "required: items[1].price is missing",
    '"items":{"price":1}': 'type: items is not a JSON array, got {"price":1}',
    '"items":[[]]': "type: items[0] is not a JSON object, got []",
    # the first of several
    '"items":[{"price":1,"qty":"x"},{"price":"y"}]': 'type: items[0].qty is not a whole number within int, got "x"',
    '"by":{"k":{"n":1},"l":{"n":1.0}}': 'type: by["l"].n is not a whole number within bigint, got 1.0',
    '"by":{"k":5}': 'type: by["k"] is not a JSON object, got 5',
    '"by":[]': "type: by is not a JSON object, got []",
    '"at":{}': "required: at.since is missing",
    '"at":{"since":"2026-01-01T00:00:00"}': (
        "type: at.since is not ISO-8601 text with an offset, of the years 1 to 9999 in UTC, such as "
        '2026-01-01T00:00:00Z, got "2026-01-01T00:00:00"'
    ),
    '"at":{"Street. Nr":5,"since":"2026-01-01T00:00Z"}': "type: at.Street. Nr is not a JSON string, got 5",
    '"at":"{}"': 'type: at is not a JSON object, got "{}"',
    '"tags":[[],["x",false]]': "type: tags[1][1] is not a JSON string, got false",
    '"days":["2026-02-30"]': 'type: days[0] is not text such as 2026-01-01, got "2026-02-30"',
}


@pytest.mark.parametrize("fields", WRONG)
def test_a_wrong_leaf_rejects_its_row_with_path_and_value(fields: str) -> None:
    (column,) = (name for name in names(ORDER) if fields.startswith(f'"{name}"'))
    assert wrong(ORDER, f'{{"id":"a",{fields}}}') == {column: WRONG[fields]}


def test_each_column_has_its_own_reason() -> None:
    assert wrong("id string not null, n int, d double", '{"n":"x","d":1e400}') == {
        "id": "required: id is missing",
        "n": 'type: n is not a whole number within int, got "x"',
        "d": "type: d is not a number within double, got 1e400",
    }
    assert wrong("id string not null", '{"id":null}') == {"id": "required: id is missing"}


def test_fields_that_nobody_declared_are_told_by_their_path_beside_what_is_wrong() -> None:
    row = reader("id string, st struct<a: int, b: struct<c: int>>, xs array<struct<n: int>>")(
        '{"x":1,"id":5,"st":{"y":null,"a":"1","b":{"c":1,"z":[]}},"xs":[{"n":1,"m":1},{"m":2,"n":"1"}],"ID":1}'
    )
    assert row.unknown == ["ID", "st.b.z", "st.y", "x", "xs.m"]
    assert set(row.wrong or {}) == {"id", "st", "xs"}


def test_a_field_may_have_another_name_than_its_column() -> None:
    columns = columns_of("id string not null, deleted boolean, user_name string")
    fields = {"id": "_id", "deleted": "__deleted", "user_name": "user.name"}
    read = reader_of(columns, fields)
    row = read({"_id": "a", "__deleted": True, "user.name": "b"})
    assert row == Row(["a", True, "b"])
    row = read({"id": "a", "__deleted": "x"})
    assert (row.wrong, row.unknown) == (
        {"id": "required: _id is missing", "deleted": 'type: __deleted is not a JSON boolean, got "x"'},
        ["id"],
    )


def test_a_reader_asks_for_no_more_than_it_is_given() -> None:
    schema = "id string not null, st struct<a: int not null>"
    columns = [replace(column, required=False) for column in columns_of(schema)]
    assert reader_of(columns)({}) == Row([None, None])
    assert reader_of(columns)({"st": {}}).wrong == {"st": "required: st.a is missing"}


def test_how_single_values_are_read_holds_at_every_depth() -> None:
    schema = (
        "xs array<array<double>>, by map<string, struct<v: float>>, st struct<s: struct<d: double not null>>, x double"
    )
    text = '{"xs":[["NaN",null],[-0.0]],"by":{"NaN":{"v":"Infinity"},"k":{}},"st":{"s":{"d":"-Infinity"}},"x":"NaN"}'
    of_a_table = reader_of(columns_of(schema), leaves=typed_leaf_of)(object_of(text.encode()))
    assert (of_a_table.wrong, of_a_table.unknown) == (None, None)
    assert repr(of_a_table.values) == (
        "[[[nan, None], [-0.0]], [('NaN', {'v': inf}), ('k', {'v': None})], {'s': {'d': -inf}}, nan]"
    )
    assert wrong(schema, text) == {
        "xs": 'type: xs[0][0] is not a number within double, got "NaN"',
        "by": 'type: by["NaN"].v is not a number within float, got "Infinity"',
        "st": 'type: st.s.d is not a number within double, got "-Infinity"',
        "x": 'type: x is not a number within double, got "NaN"',
    }


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda: Json("b binary"), "column 'b' has type 'binary', and JSON cannot carry 'binary' here; use string"),
        (lambda: Json("a array<struct<t: timestamp_ntz>>"), "JSON cannot carry 'timestamp_ntz' here"),
        (lambda: Json("m map<int, string>"), "JSON cannot carry 'map<int, string>' here"),
        (lambda: Json("d decimal(39, 2)"), r"JSON cannot carry 'decimal\(39, 2\)' here"),
        (lambda: Json("id string", {"ID": "_id"}), "fields of Json has 'ID', which is no declared column; columns are"),
        (lambda: Json("id string, a string", {"id": "a"}), "two columns of Json are read from the field 'a'"),
        (lambda: Json("id string", {"id": 5}), "'id' in fields of Json is 5, a int"),  # type: ignore[dict-item]
    ],
)
def test_what_json_cannot_carry_is_refused_when_it_is_declared(declare: Callable[[], Any], message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        declare()


UNREADABLE = {
    b"": WHOLE,
    b" \t ": WHOLE,
    b"[1]": WHOLE,
    b"null": WHOLE,
    b'"{}"': WHOLE,
    b"{'a':1}": WHOLE,
    b'{"a":1': WHOLE,
    b'{"a":1}]{"a":2}': WHOLE,
    b'{"a":1} {"a":2}': WHOLE,
    b'{"a":1} x': WHOLE,
    b'{"a":1}\0': WHOLE,
    b'{"a":1}\xc2\xa0': WHOLE,
    b'\xef\xbb\xbf\xef\xbb\xbf{"a":1}': WHOLE,
    b'{"a":1,}': WHOLE,
    b'{"a":01}': WHOLE,
    b'{"a":+1}': WHOLE,
    b'{"a":1.}': WHOLE,
    b'{"a":NaN}': WHOLE,
    b'{"a":[-Infinity]}': WHOLE,
    b'{"a":Infinity}': WHOLE,
    b'{"a":"\x01"}': WHOLE,
    b'{"a":"\n"}': WHOLE,
    b'{"a":"\\x"}': WHOLE,
    b'{"a":"\\u00g0"}': WHOLE,
    b'{"a":1} // note': WHOLE,
    b'{"a":"\xff"}': "the payload is not UTF-8",
    b'{"a":"\xed\xa0\xbd"}': "the payload is not UTF-8",
    b'{"a":1,"a":1}': f'{WHOLE}: it has the field "a" more than once',
    b'{"a":1,"\\u0061":1}': f'{WHOLE}: it has the field "a" more than once',
    b'{"x":[{"y":{"b":1,"c":2,"b":null}}]}': f'{WHOLE}: it has the field "b" more than once',
    b'{"\\ud83d":1}': f"{WHOLE}: it has half a character in the name of a field",
    b'{"a":[{"x\\uDE00":1}]}': f"{WHOLE}: it has half a character in the name of a field",
    b'{"a":' + b"[" * DEEPEST + b"]" * DEEPEST + b"}": f"{WHOLE} of at most {DEEPEST} levels",
    b'{"a":' + b'{"a":' * 100_000 + b"}" * 100_000 + b"}": f"{WHOLE} of at most {DEEPEST} levels",
    b"[" * 1_000_000: f"{WHOLE} of at most {DEEPEST} levels",
}


@pytest.mark.parametrize("payload", UNREADABLE, ids=map(str, range(len(UNREADABLE))))
def test_what_is_not_exactly_one_object_cannot_be_read(payload: bytes) -> None:
    with pytest.raises(Unreadable) as error:
        object_of(payload)
    assert str(error.value) == UNREADABLE[payload]


def test_one_object_may_have_white_space_and_a_byte_order_mark_around_it() -> None:
    for payload in (b' \r\n{"a":1}\t\n', b'\xef\xbb\xbf{"a":1}', b'{ "a" : 1 }'):
        assert object_of(payload) == {"a": 1}
    assert object_of(b'{"a":"\\ud83d\\ude00","b":{"\\uD83D\\uDE00":1}}') == {"a": "\U0001f600", "b": {"\U0001f600": 1}}
    # Half a character in a value is that column's matter.
    assert object_of(b'{"a":"\\ud83d"}') == {"a": "\ud83d"}


def test_as_many_levels_as_are_allowed_are_read_and_brackets_in_texts_are_none() -> None:
    lists = DEEPEST - 1
    assert "a" in object_of(b'{"a":' + b"[" * lists + b"]" * lists + b"}")
    assert object_of(b'{"a":"\\"' + b"[{" * DEEPEST + b'"}') == {"a": '"' + "[{" * DEEPEST}
    assert len(object_of(b'{"a":[' + b",".join([b"[]"] * 2_000) + b"]}")["a"]) == 2_000


def test_a_long_text_beside_many_brackets_takes_no_more_memory_than_it_is_long() -> None:
    payload = b'{"a":[' + b",".join([b"[]"] * DEEPEST) + b'],"b":"' + b"x" * 2_000_000 + b'"}'
    tracemalloc.start()
    object_of(payload)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 5 * len(payload)


def test_numbers_stand_in_a_text_of_json_as_they_were_written() -> None:
    text = '{"a":[1.50,1e5,-0.0,9007199254740993,99999999999999.99,true,null,"x\\"y\\n"],"b c":{"d":[],"e":{}}}'
    assert text_of(object_of(text.encode())) == text
    digits = "1" * 5_000
    assert text_of(object_of(f'{{"a":{digits}}}'.encode())) == f'{{"a":{digits}}}'


def test_a_value_at_the_deepest_level_is_text_as_fast_as_one_at_the_top() -> None:
    numbers = ",".join(["1"] * 50_000)
    levels = DEEPEST - 1
    seconds = []
    for text in (f'{{"a":[{numbers}]}}', f'{{"a":{"[" * levels}{numbers}{"]" * levels}}}'):
        value = object_of(text.encode())
        began = process_time()
        assert text_of(value) == text
        seconds.append(process_time() - began)
    assert seconds[1] < 5 * seconds[0]


def test_a_reason_shows_the_beginning_of_a_value_and_nothing_that_a_terminal_obeys() -> None:
    assert shown_value("x" * 50) == '"' + "x" * 49 + "..."
    assert shown_value("x" * 48) == '"' + "x" * 48 + '"'
    assert shown_value("a\x1b[31m\x9b\u202e") == '"a\\u001b[31m\\x9b\\u202e"'
    assert shown_value("x\ud83d") == '"x\\ud83d"'
    assert shown_value(["x" * 10**7, *range(10**4)]).startswith('["xxx') and len(shown_value(["x" * 10**7])) == 53
    assert cut("a\nb\r\tc") == "a\\nb\\r\\tc"
