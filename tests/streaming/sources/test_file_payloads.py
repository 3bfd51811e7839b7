"""What a payload is within a file: arrays, records and encodings, cut without losing a byte that says something."""

from __future__ import annotations

import csv
import io
import json
from encodings.aliases import aliases
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.base.errors import DeclarationError
from streaming.sources.file_payloads import CsvRecords, Payloads, check_payloads, cut_of, elements, in_utf8, records

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(VALUES, max_size=6), st.sampled_from([None, 2]), st.booleans(), st.sampled_from(["", "\n", " \r\n\t"]))
def test_each_element_of_an_array_is_a_payload_as_it_was_written(
    values: list[Any], indent: int | None, as_ascii: bool, around: str
) -> None:
    content = (around + json.dumps(values, indent=indent, ensure_ascii=as_ascii) + around).encode()
    cut = list(elements(content))
    assert [json.loads(element) for element in cut] == values
    for element in cut:
        assert element in content and element == element.strip()


@pytest.mark.parametrize(
    ("content", "payloads"),
    [
        (b"[]", []),
        (b" [ \n ] ", []),
        (b'\xef\xbb\xbf[{"a": 99999999999999.99}]', [b'{"a": 99999999999999.99}']),
        # One bad element is its own business.
        (b'[{"a":01}, {"b":2}]', [b'{"a":01}', b'{"b":2}']),
        (b'[{"a":1]}, {"b":2}]', [b'{"a":1]}', b'{"b":2}']),
        (b'[{"a":1}}, {"b":2}]', [b'{"a":1}}', b'{"b":2}']),
        (b'[{"a":1}{"b":2}]', [b'{"a":1}{"b":2}']),
        (b'["],{", {"b":"\\"]"}]', [b'"],{"', b'{"b":"\\"]"}']),
        (b'[{"a":"\xff"},{"b":2}]', [b'{"a":"\xff"}', b'{"b":2}']),
        # An array that does not end, or ends twice, shows in a payload that is no object.
        (b'[{"a":1},{"b":2}', [b'{"a":1}', b',{"b":2}']),
        (b'[{"a":1}', [b'[{"a":1}']),
        (b"[", [b"["]),
        (b'[{"a":1},{"b":"', [b'{"a":1}', b',{"b":"']),
        (b'[{"a":1},]', [b'{"a":1}', b""]),
        (b'[{"a":1}] {"b":2}', [b'{"a":1}', b'] {"b":2}']),
        # What is no array is one payload.
        (b'{"a":1}', [b'{"a":1}']),
        (b'{"a":1}\n{"b":2}', [b'{"a":1}\n{"b":2}']),
        (b"", [b""]),
    ],
)
def test_what_is_no_array_of_objects_is_in_a_payload_that_can_be_refused(content: bytes, payloads: list[bytes]) -> None:
    assert list(elements(content)) == payloads


FIELDS = st.lists(st.text(st.sampled_from('ab,;"\n\r é'), max_size=5), min_size=2, max_size=3)


@given(st.lists(FIELDS, max_size=5), st.sampled_from([",", ";"]), st.sampled_from(['"', "'"]), st.booleans())
def test_each_record_of_csv_is_a_payload_whatever_line_ends_its_quotes_hold(
    rows: list[list[str]], separator: str, quote: str, ends: bool
) -> None:
    text = io.StringIO()
    csv.writer(text, delimiter=separator, quotechar=quote, quoting=csv.QUOTE_ALL).writerows(rows)
    content = text.getvalue().encode() if ends else text.getvalue().removesuffix("\r\n").encode()
    cut = list(records(content, separator.encode(), quote.encode()))
    parsed = [next(csv.reader(io.StringIO(piece.decode(), ""), delimiter=separator, quotechar=quote)) for piece in cut]
    assert parsed == rows


@pytest.mark.parametrize(
    ("content", "payloads"),
    [
        (b"a,b\r\nc,d\ne,f\rg", [b"a,b", b"c,d", b"e,f", b"g"]),
        (b"\xef\xbb\xbfa\n\nb\n", [b"a", b"", b"b"]),
        # A quote within a field opens nothing: no record is taken with it.
        (b'5" pipe,1\n6" pipe,2\n', [b'5" pipe,1', b'6" pipe,2']),
        (b'"a\n""b""\n",1\nc,2', [b'"a\n""b""\n",1', b"c,2"]),
        (b'"a" b\nc', [b'"a" b', b"c"]),
        (b'a,"never closed\nc,d\n', [b'a,"never closed\nc,d\n']),
    ],
)
def test_a_line_end_ends_a_record_unless_it_stands_in_quotes(content: bytes, payloads: list[bytes]) -> None:
    assert list(records(content, b",", b'"')) == payloads


@given(st.lists(FIELDS, max_size=5), st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_NONE]), st.sampled_from("\\.^-"))
def test_what_stands_behind_an_escape_ends_no_record(rows: list[list[str]], quoting: Any, escape: str) -> None:
    text = io.StringIO()
    how: dict[str, Any] = {"quoting": quoting, "escapechar": escape, "doublequote": False}
    csv.writer(text, **how).writerows(rows)
    cut = list(cut_of(CsvRecords(escape=escape))(text.getvalue().encode()))
    assert [next(csv.reader(io.StringIO(piece.decode(), ""), **how)) for piece in cut] == rows


@pytest.mark.parametrize(
    ("content", "payloads"),
    [
        # Half a record would be a whole one to whoever reads it.
        (b'1,"a\\"b\n2,c"\n3,d', [b'1,"a\\"b\n2,c"', b"3,d"]),
        (b"1,a\\\nb\r\n2,c\\", [b"1,a\\\nb", b"2,c\\"]),
        (b"1,a\\\r\nb\r\n2,c\\\r", [b"1,a\\\r\nb", b"2,c\\\r"]),
        (b'1,"a\\', [b'1,"a\\']),
    ],
)
def test_a_line_end_or_a_quote_behind_an_escape_belongs_to_its_field(content: bytes, payloads: list[bytes]) -> None:
    assert list(cut_of(CsvRecords(escape="\\"))(content)) == payloads


@pytest.mark.parametrize(
    ("content", "payloads"),
    [
        (b"id,n\r\na,1\r\nb,2\r\n", [b"id,n\na,1", b"id,n\nb,2"]),
        (b'\xef\xbb\xbf# by night, "v2\nn,"i\nd"\n#\n1,"a\n#b"\n # c,2', [b'n,"i\nd"\n1,"a\n#b"', b'n,"i\nd"\n # c,2']),
        (b"id,n\n", [b"id,n"]),
        (b"# nothing\r\n", []),
        (b"", []),
    ],
)
def test_a_header_goes_along_with_each_record_and_comments_are_left_out(content: bytes, payloads: list[bytes]) -> None:
    assert list(cut_of(CsvRecords(header=True, comment="#"))(content)) == payloads


def test_without_a_comment_a_record_may_begin_with_any_sign() -> None:
    assert list(cut_of(CsvRecords())(b"id,n\n#1,2\n")) == [b"id,n", b"#1,2"]


@given(st.text(st.characters(max_codepoint=255)))
def test_latin_1_becomes_utf_8(text: str) -> None:
    assert in_utf8(text.encode("latin-1"), "latin-1") == text.encode()


def test_a_byte_that_the_encoding_does_not_know_leaves_a_payload_that_is_no_utf_8() -> None:
    with pytest.raises(UnicodeDecodeError):
        in_utf8("Â".encode("cp1252") + b"\x81", "cp1252").decode()


def _is_taken(encoding: str) -> bool:
    try:
        check_payloads("lines", encoding)
    except DeclarationError:
        return False
    return True


TAKEN = sorted(filter(_is_taken, {*aliases.values()}))
ODD = st.sampled_from([b"\x81", b"\xd2\x81", b"\xff", b"\xc3\xa9", b"\xed\xa0\x80", b"\x1b$B", b"~{", b"+A", b"\\u12"])


@settings(max_examples=500, deadline=None)
@given(st.sampled_from(TAKEN), st.lists(ODD | st.binary(min_size=1, max_size=3), max_size=6))
def test_a_file_is_what_its_encoding_says_or_no_utf_8(encoding: str, parts: list[bytes]) -> None:
    content = b"".join(parts)
    made = in_utf8(content, encoding)
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError:
        with pytest.raises(UnicodeDecodeError):
            made.decode()
    else:
        assert made == text.encode()


@pytest.mark.parametrize(
    ("content", "encoding"),
    [(b"\xd2\x81", "cp1253"), ("é".encode(), "ascii"), (b"a\xc2\x80b", "euc_kr"), (b"a\x81\x8d", "cp1252")],
)
def test_unknown_bytes_that_are_a_sign_of_utf_8_together_are_not_taken_for_it(content: bytes, encoding: str) -> None:
    with pytest.raises(UnicodeDecodeError):
        content.decode(encoding)
    with pytest.raises(UnicodeDecodeError):
        in_utf8(content, encoding).decode()


@pytest.mark.parametrize(
    "encoding",
    ["iso2022_jp", "iso2022_kr", "iso2022_jp_ext", "hz", "utf-7", "raw_unicode_escape", "idna", "punycode"],
)
def test_an_encoding_in_which_one_byte_changes_others_is_refused(encoding: str) -> None:
    with pytest.raises(DeclarationError, match=f"encoding='{encoding}' of Files is none in which"):
        check_payloads("lines", encoding)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig", "cp037", "no such", "rot13"])
def test_an_encoding_without_the_line_ends_of_ascii_is_refused(encoding: str) -> None:
    with pytest.raises(DeclarationError, match=f"encoding='{encoding}' of Files is none in which line ends"):
        check_payloads("lines", encoding)


@pytest.mark.parametrize("encoding", ["UTF8", "latin-1", "cp1252", "shift_jis", "gb18030"])
def test_an_encoding_with_the_line_ends_of_ascii_is_taken(encoding: str) -> None:
    check_payloads(CsvRecords(";"), encoding)


def test_payloads_that_nobody_knows_are_refused_with_those_that_there_are() -> None:
    unknown: Any = "elements"
    kind: Payloads = unknown
    with pytest.raises(DeclarationError, match="write 'lines', 'file', 'array' or CsvRecords"):
        check_payloads(kind, "utf-8")
    for sign in ("", ",,", "é", "\n"):
        with pytest.raises(DeclarationError, match="is not one character of ASCII"):
            CsvRecords(quote=sign)
        with pytest.raises(DeclarationError, match=r"comment=.* of CsvRecords is not one character of ASCII"):
            CsvRecords(comment=sign)
    taken: tuple[dict[str, Any], ...] = (
        {"quote": ","},
        {"escape": '"'},
        {"comment": '"'},
        {"comment": "#", "escape": "#"},
    )
    for signs in taken:
        with pytest.raises(DeclarationError, match="and one stands for two things; choose others"):
            CsvRecords(**signs)
