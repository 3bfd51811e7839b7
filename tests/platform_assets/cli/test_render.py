"""Tables for a terminal: nothing is wider than it, and nothing is left out in silence."""

from __future__ import annotations

import io
from datetime import UTC, datetime

import pyarrow as pa
from rich.console import Console

from platform_assets.cli.render import print_findings, print_table
from streaming.operators.runtime import Finding


def terminal() -> tuple[Console, io.StringIO]:
    text = io.StringIO()
    return Console(file=text, width=80), text


def widest(text: io.StringIO) -> int:
    return max(len(line.rstrip()) for line in text.getvalue().splitlines())


def test_a_report_shows_the_columns_that_fit_and_names_the_others() -> None:
    console, text = terminal()
    print_table(console, pa.table({f"measure_of_a_day_{number}": [1.5, 2.25] for number in range(6)}), "wide")
    assert widest(text) <= 80
    assert "measure_of_a_day_2" in text.getvalue().splitlines()[2]
    output = " ".join(text.getvalue().split())
    assert "its files also have measure_of_a_day_3, measure_of_a_day_4, measure_of_a_day_5." in output


def test_a_report_with_one_column_that_is_too_wide_is_printed_in_blocks() -> None:
    console, text = terminal()
    print_table(console, pa.table({"x" * 79: ["a note " * 8]}), "notes")
    assert widest(text) <= 80
    assert text.getvalue().startswith("notes\nrow 1 ─")


def test_values_are_text_for_people() -> None:
    console, text = terminal()
    rows = {
        "payload": [b"\xff{"],
        "at": [datetime(2026, 1, 1, 12, tzinfo=UTC)],
        "nested": [{"a": 1, "b": None, "c": [1, 2]}],
        "nothing": [None],
        "markup": ["[bold]"],
    }
    print_table(console, pa.table(rows), "values")
    assert text.getvalue().splitlines()[4].split() == [
        "\\xff{",
        "2026-01-01",
        "12:00:00",
        "a=1,",
        "c=1;",
        "2",
        "[bold]",
    ]


def test_what_could_not_be_asked_is_not_said_to_hold() -> None:
    console, text = terminal()
    asked = Finding("delivery", "out", 3, 0, "rows of the table up to where it is = rows sent")
    why = "the target is away (refused)"
    assert print_findings(console, [asked, Finding("delivery", "out", 0, 0, f"not compared: {why}", unasked=why)])
    assert "no law is broken, but 1 could not be asked" in text.getvalue()
    assert "every law holds" not in text.getvalue()


def test_the_longest_law_fits_on_a_line() -> None:
    console, text = terminal()
    law = Finding("partition", "departures_by_origin", 1_234, 0, "(row, window) pairs: on time or late")
    assert print_findings(console, [law])
    assert widest(text) <= 80
    assert "(row, window) pairs: on time or late" in text.getvalue()
