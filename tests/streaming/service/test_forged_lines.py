"""What came from outside looks like itself in a log and on a terminal, and not like a line or an order of theirs."""

from __future__ import annotations

import io
import logging

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from platform_assets.cli.render import print_table
from streaming.base.wording import shown
from streaming.log.batches import count_unknown
from streaming.service.logs import TextLines

FORGED = "a file vanished: x\n2026-01-01 00:00:00 ERROR all is lost\r\x1b[2J\x1b]0;owned\x07"


def test_a_message_with_line_ends_in_it_begins_no_line_of_the_log() -> None:
    record = logging.LogRecord("tidemark", logging.INFO, __file__, 1, "%s", (FORGED,), None)
    line = TextLines("%(levelname)s %(message)s").format(record)
    assert line.splitlines() == [
        "INFO a file vanished: x",
        r"    2026-01-01 00:00:00 ERROR all is lost\r\x1b[2J\x1b]0;owned\x07",
    ]


@given(st.text())
def test_no_value_of_a_row_is_an_order_to_the_terminal(value: str) -> None:
    console = Console(file=io.StringIO(), width=200)
    print_table(console, pa.table({"value": [value, FORGED]}), "rows")
    written = console.file.getvalue()  # type: ignore[attr-defined]
    assert not {character for character in written if ord(character) < 32 or 127 <= ord(character) < 160} - {"\n", "\t"}
    assert shown(value) == shown(shown(value)) and (shown(value) == value or not value.isprintable())


def test_names_of_unknown_fields_are_short_and_of_one_line() -> None:
    counts = count_unknown([(f"{'k' * 1_000}\x1f{FORGED}", 3), ("note", 1)])  # type: ignore[list-item]
    assert [*counts.values()] == [3, 3, 1]
    assert all(len(name) <= 103 and name.isprintable() for name in counts)
