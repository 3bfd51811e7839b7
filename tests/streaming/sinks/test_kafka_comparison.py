"""Records that should be in a topic against those that are, without a broker."""

from __future__ import annotations

from streaming.sinks.kafka.audited import Printed, compare_every, compare_newest, digest_of


def printed(text: str) -> list[Printed]:
    """One for each letter, whose key it is."""
    return [Printed(letter.encode(), digest_of(letter.encode(), b"", "t", ())) for letter in text]


def test_each_record_counts_as_often_as_it_lacks_or_is_there_too_often() -> None:
    def compared(should: str, there: str, *, may_be_twice: bool = False) -> tuple[int, int, tuple[str, ...]]:
        comparison = compare_every(map(printed, should.split()), printed(there), may_be_twice=may_be_twice)
        return comparison.records, comparison.differing, comparison.named

    assert compared("ab ca", "caab") == (4, 0, ())
    assert compared("ab ca", "cab") == (4, 1, ("a",))
    assert compared("ab c", "cabbb") == (3, 2, ("b",))
    assert compared("ab c", "cabbb", may_be_twice=True) == (3, 0, ())
    assert compared("ab c", "xyzabz") == (3, 1, ("c",)), "those of others are passed over"
    assert compared("", "x") == (0, 0, ())


def test_of_what_is_current_a_key_that_should_be_gone_differs() -> None:
    assert compare_newest({b"a": 1, b"b": 2}, {b"a": 1, b"b": 2}).differing == 0
    comparison = compare_newest({b"a": 1, b"b": 2}, {b"b": 3, b"c": 4})
    assert (comparison.records, comparison.differing, comparison.named) == (2, 3, ("a", "b", "c"))


def test_no_two_records_share_a_digest_because_parts_are_cut_elsewhere_or_null() -> None:
    records = [
        digest_of(b"ab", b"c", "t", ()),
        digest_of(b"a", b"bc", "t", ()),
        digest_of(None, b"c", "t", ()),
        digest_of(b"", b"c", "t", ()),
        digest_of(b"ab", b"c", "u", ()),
        digest_of(b"ab", b"c", "t", [("h", b"1")]),
        digest_of(b"ab", b"c", "t", [("h", None)]),
    ]
    assert len({*records}) == len(records)
