"""A record of CSV is read whole or refused, and says which of its fields is wrong."""

from __future__ import annotations

import csv
import io
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming import Csv
from streaming.base import DeclarationError
from streaming.formats import UNKNOWN, UNREADABLE, WRONG
from streaming.formats.csv import CsvDecoder, Signs, record_reader
from streaming.formats.decoder import Row, Unreadable

PLAIN = Signs(",", '"')
ESCAPED = Signs(";", "'", "\\", "\\N")


def decoder(form: Csv) -> CsvDecoder:
    names = tuple(column.name for column in form.columns)
    signs = Signs(form.separator, form.quote, form.escape, form.null)
    return CsvDecoder(names, None, None, form.columns, signs, form.encoding, form.header, form.fields)


def read(form: Csv, payload: bytes) -> Row | str:
    """What a payload says, or why it cannot be read."""
    try:
        return decoder(form).row(payload, None, None)
    except Unreadable as error:
        return str(error)


RECORDS: dict[str, list[str | None]] = {
    "a,b": ["a", "b"],
    ",": [None, None],
    '"",': ["", None],
    '"a,""b""",c': ['a,"b"', "c"],
    '1,"two\nlines"': ["1", "two\nlines"],
    '1,"two\r\nlines"\r\n': ["1", "two\r\nlines"],
    "a,b\n": ["a", "b"],
    "a,b\r": ["a", "b"],
    "five\",5'": ['five"', "5'"],
    ' "a",b': [' "a"', "b"],
    "\\,b": ["\\", "b"],
    '"""",""""""': ['"', '""'],
    "\u00fc, ": ["\u00fc", " "],
}
NO_RECORDS = {
    "": "the payload is not one record of 2 fields",
    "\n": "the payload is not one record of 2 fields",
    "a": "the payload is not one record of 2 fields: it has 1",
    "a,b,": "the payload is not one record of 2 fields: it has 3",
    "a,b\nc,d": "the payload is not one record of 2 fields: another line follows it",
    "a,b\n\n": "the payload is not one record of 2 fields: another line follows it",
    'a,"b"\nc': "the payload is not one record of 2 fields: another line follows it",
    "a\rb,c": "the payload is not one record of 2 fields: another line follows it",
}
OPEN = "the payload is not one record of 2 fields: field {} has a quote that is not closed, or text that follows one"


def test_a_record_has_the_fields_that_were_written() -> None:
    form = Csv("a string, b string")
    assert {text: read(form, text.encode()) for text in RECORDS} == {
        text: Row(record) for text, record in RECORDS.items()
    }


def test_anything_but_one_record_of_its_fields_cannot_be_read() -> None:
    form = Csv("a string, b string")
    assert {text: read(form, text.encode()) for text in NO_RECORDS} == NO_RECORDS
    for text, field in {'1,"first line': 2, '"a"b,c': 1, 'a,"b" ': 2, '"a""': 1, '"': 1, 'a,"b"c"': 2}.items():
        assert read(form, text.encode()) == OPEN.format(field), text
    assert read(form, b"\xff,") == "the payload is not UTF-8"


def test_an_escape_makes_the_next_sign_stand_for_itself_in_quotes_or_not() -> None:
    records: dict[str, list[str | None]] = {
        r"a\;b;c": ["a;b", "c"],
        r"'a\'b''c\\';d": [r"a'b'c" + "\\", "d"],
        "a\\\nb;''": ["a\nb", ""],
        r"\'a;b": ["'a", "b"],
        # doubled quotes mean one in quotes only
        r"a''b\;;": ["a''b;", None],
        # what means null is what was written
        r"\N;'\N'": [None, "N"],
        r"\\N;N": [r"\N", "N"],
    }
    form = Csv("a string, b string", ";", "'", "\\", "\\N")
    assert {text: read(form, text.encode()) for text in records} == {
        text: Row(record) for text, record in records.items()
    }
    for escape in ".^-$":
        dotted = record_reader(Signs(",", '"', escape))
        assert dotted(f'a{escape},b,"c{escape}"d"', 0)[0] == ["a,b", 'c"d']
    for text in ("a;b\\", "a;'b\\'", "'a\\"):
        assert str(read(form, text.encode())).endswith("that is not closed, or text that follows one"), text


def test_a_value_is_judged_by_its_type_and_the_reason_shows_it() -> None:
    form = Csv("id string not null, n int, d decimal(10,2), t timestamp, b boolean", null="NA")
    assert read(form, b"a,5,1.50,2026-01-01 00:00Z,TRUE") == Row(["a", 5, decimal("1.50"), 1_767_225_600_000_000, True])
    assert read(form, b"NA,NA,,NA,NA") == Row([None] * 5, {"id": "required: id is missing"})
    assert read(form, b'"NA",1.5,1.005,2026-01-01T00:00:00,' + b"y" * 60) == Row(
        ["NA", None, None, None, None],
        {
            "n": "type: n is not a whole number within int, got 1.5",
            "d": "type: d is not a number within decimal(10,2), got 1.005",
            "t": (
                "type: t is not ISO-8601 text with an offset, of the years 1 to 9999 in UTC, such as "
                "2026-01-01T00:00:00Z, got 2026-01-01T00:00:00"
            ),
            "b": f"type: b is not true or false, got {'y' * 50}...",
        },
    )
    assert read(form, b'a,"","",,') == Row(
        ["a", None, None, None, None],
        {
            "n": "type: n is not a whole number within int, got ",
            "d": "type: d is not a number within decimal(10,2), got ",
        },
    )


def decimal(text: str) -> Any:
    from decimal import Decimal

    return Decimal(text)


def test_a_header_says_where_the_fields_of_its_payload_stand() -> None:
    form = Csv("id string not null, n int", header=True, fields={"id": "Order No."})
    rows = {
        "Order No.,n\na,5": Row(["a", 5]),
        'n,"Order No."\r\n5,"a"\r\n': Row(["a", 5]),
        "Order No.,x,,n\na,1,2,5": Row(["a", 5], None, ["x", ""]),
        "Order No.\na": Row(["a", None]),
        "id,n\na,5": Row([None, 5], {"id": "required: id is missing"}, ["id"]),
        "n,Order No.\na": "the payload is not one record of 2 fields: it has 1",
        "n,Order No.\n": "the payload is not one record of 2 fields",
        "n,Order No.": "the payload is not one record of 2 fields",
        "n,Order No.\n1,a\n2,b": "the payload is not one record of 2 fields: another line follows it",
        "1,a\n2,b": "the payload does not begin with a record of names: none of them is that of a column",
        "n,n\n1,2": "the payload begins with a record that has a name more than once",
        '"n\n1': "the payload does not begin with a record of names: field 1 has a quote that is not closed, or text "
        "that follows one",
    }
    assert {text: read(form, text.encode()) for text in rows} == rows


def test_the_text_that_means_null_is_a_name_in_a_header() -> None:
    form = Csv("NA string, b int", null="NA", header=True)
    assert read(form, b"NA,b\nx,1") == Row(["x", 1])
    assert read(form, b'"NA",b\nNA,NA') == Row([None, None])
    assert read(Csv("b int", null="NA", header=True), b"b,NA,\n1,NA,") == Row([1], None, ["NA", ""])
    assert read(form, b"NA,,b,\nx,1,2,3") == "the payload begins with a record that has a name more than once"
    assert read(form, b'NA,"",b,\nx,1,2,3') == "the payload begins with a record that has a name more than once"


def test_a_batch_of_records_is_read_each_by_itself() -> None:
    of = decoder(Csv("id string not null, n int"))
    of.types = pa.schema(
        [
            ("id", pa.string()),
            ("n", pa.int32()),
            (UNREADABLE, pa.string()),
            (WRONG, pa.struct([("id", pa.string()), ("n", pa.string())])),
            (UNKNOWN, pa.list_(pa.string())),
        ]
    )
    arrays = of.arrays(pa.array([b"a,1", None, b",x", b'"'], pa.binary()), None)
    assert [array.to_pylist() for array in arrays] == [
        ["a", None, None, None],
        [1, None, None, None],
        [None, None, None, f"csv: {OPEN.format(1)}"],
        [
            None,
            None,
            {"id": "required: id is missing", "n": "type: n is not a whole number within int, got x"},
            None,
        ],
        [None] * 4,
    ]


def test_a_payload_is_in_its_encoding() -> None:
    form = Csv("a string, b string", encoding="latin-1")
    assert read(form, "\u00fc,\u00df".encode("latin-1")) == Row(["\u00fc", "\u00df"])
    assert read(Csv("a string", encoding="utf-16"), "\u00fc".encode("utf-16")) == Row(["\u00fc"])
    assert read(Csv("a string", encoding="ascii"), "\u00fc".encode()) == "the payload is not ASCII"
    assert read(Csv("n int"), b"\xef\xbb\xbf5") == Row([5])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"separator": "::"}, "separator='::' of Csv is not one character of a line"),
        ({"quote": "\n"}, r"quote='\\n' of Csv is not one character of a line"),
        ({"escape": ""}, "escape='' of Csv is not one character of a line"),
        ({"separator": '"'}, "and one stands for two things"),
        ({"escape": '"'}, "and one stands for two things"),
        ({"encoding": "nope"}, "encoding='nope' of Csv is no encoding of text"),
        ({"encoding": "base64"}, "encoding='base64' of Csv is no encoding of text"),
        ({"encoding": None}, "encoding of Csv is None, a NoneType"),
        ({"null": 5}, "null of Csv is 5, a int"),
        ({"header": "yes"}, "header of Csv is 'yes', a str"),
        ({"fields": {"a": "b"}}, "fields of Csv are names in a header, and header=False"),
        ({"fields": {"b": "c"}, "header": True}, "fields of Csv has 'b', which is no declared column"),
        ({"schema": "a array<int>"}, "column 'a' has type 'array<int>', which a field cannot carry here"),
        ({"schema": "a binary"}, "column 'a' has type 'binary', which a field cannot carry here"),
    ],
)
def test_what_cannot_be_meant_is_refused_when_it_is_declared(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        Csv(**{"schema": "a string", **settings})


texts = st.text(st.sampled_from("ab,;\"'\\\r\n \u00fc"), max_size=6)


@given(st.lists(texts, min_size=1, max_size=4))
def test_what_pythons_own_writer_writes_is_read_as_it_was(record: list[str]) -> None:
    file = io.StringIO()
    csv.writer(file, quoting=csv.QUOTE_ALL).writerow(record)
    assert record_reader(PLAIN)(file.getvalue(), 0) == (record, len(file.getvalue()))
    file = io.StringIO()
    csv.writer(file, delimiter=";", quotechar="'", escapechar="\\", doublequote=False).writerow(record)
    # An empty text that is not in quotes is null.
    assert [text or "" for text in record_reader(ESCAPED)(file.getvalue(), 0)[0]] == record


@given(texts)
def test_a_text_is_one_record_of_python_too_or_it_is_refused(text: str) -> None:
    try:
        record, end = record_reader(PLAIN)(text, 0)
    except Unreadable:
        return
    if end == len(text) and text.strip("\r\n"):
        (expected,) = csv.reader(io.StringIO(text, newline=""), strict=True)
        assert [field or "" for field in record] == expected
